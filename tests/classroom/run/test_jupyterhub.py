"""The guide's part on JupyterHub, on a hub: a student's server, the exchange, and back.

Needs jupyterhub and its proxy (`pip install jupyterhub`, `npm install configurable-http-proxy`),
which the course itself does not. All servers are of one user of the machine here.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from course_folder import EXERCISE, make_course, notebook
from nbgrader.utils import get_username

from vramlab_classroom.judge.notebooks import grade_id

PROXY = "configurable-http-proxy"
TOKEN = "the-token-of-this-test"
ROOT = Path(__file__).parents[3]

CONFIG = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{home}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser", "--allow-root"]
c.Spawner.http_timeout = 300
c.JupyterHub.services = [dict(name="test", api_token="{token}")]
c.JupyterHub.load_roles = [
    dict(name="test", services=["test"], scopes=["admin:users", "admin:servers", "access:servers"])
]
"""


class Hub:
    """A hub that runs, and the server of its one student."""

    def __init__(self, port: int) -> None:
        self._port = port

    def is_up(self) -> bool:
        """Tell whether the proxy runs, and leads to the hub."""
        try:
            return self._ask("GET", "/hub/api/users")[0] == HTTPStatus.OK
        except ConnectionError:
            return False

    def ask(self, method: str, path: str, content: object = None) -> Any:
        status, text = self._ask(method, path, content)
        assert status < HTTPStatus.MULTIPLE_CHOICES, text
        return json.loads(text) if text else None

    def _ask(self, method: str, path: str, content: object = None) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=300)
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def exercise(self, action: str) -> list[dict[str, Any]]:
        """Press a button in the student's list of assignments; give what is listed then."""
        which = {"course_id": "vramlab", "assignment_id": EXERCISE}
        answer = self.ask("POST", f"/user/student/assignments/{action}", which)
        assert answer["success"], answer
        listed: list[dict[str, Any]] = answer["value"]
        return listed


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Settings of nbgrader for everybody: where the exchange is."""
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "nbgrader_config.py").write_text(
        f"c = get_config()\nc.Exchange.root = '{exchange}'"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLAB")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    return {
        **kept,
        "JUPYTER_CONFIG_PATH": f"{settings}",
        "JUPYTER_CONFIG_DIR": f"{settings}",
        "PATH": path,
        "PYTHONPATH": f"{ROOT}",
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "student"
    home.mkdir()
    return home


@pytest.fixture
def hub(tmp_path: Path, home: Path, environment: dict[str, str]) -> Iterator[Hub]:
    """Start a hub, and on it the server of a student."""
    pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
    if shutil.which(PROXY) is None:
        pytest.skip(f"{PROXY}, which jupyterhub needs, is not installed")
    ports = free_ports(3)
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(CONFIG.format(ports=ports, home=home, python=sys.executable, token=TOKEN))
    names = ("PATH", "PYTHONPATH", "JUPYTER_CONFIG_PATH", "JUPYTER_CONFIG_DIR")
    with config.open("a") as file:
        file.write(f"c.Spawner.environment = { ({name: environment[name] for name in names})!r}\n")
    log = tmp_path / "hub.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", f"{config}"],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        started = Hub(ports[0])
        wait_until(started.is_up, process, log)
        started.ask("POST", "/hub/api/users/student")
        started.ask("POST", "/hub/api/users/student/server")

        def is_ready() -> bool:
            servers = started.ask("GET", "/hub/api/users/student")["servers"]
            return bool(servers and servers[""]["ready"])

        wait_until(is_ready, process, log)
        yield started
        started.ask("DELETE", "/hub/api/users/student/server")
    finally:
        process.terminate()
        process.wait(60)


def test_an_exercise_goes_out_and_comes_back_with_feedback(
    hub: Hub, home: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    course = make_course(tmp_path / "course")

    def teach(*words: str) -> None:
        ran = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=course,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    teach("nbgrader", "generate_assignment", EXERCISE)
    teach("nbgrader", "release_assignment", EXERCISE)
    (released,) = hub.ask("GET", "/user/student/assignments?course_id=vramlab")["value"]
    assert released["status"] == "released"

    hub.exercise("fetch")
    place = f"/user/student/api/contents/{EXERCISE}/{EXERCISE}.ipynb"
    fetched = hub.ask("GET", place)["content"]
    answers = {grade_id(cell): cell["source"] for cell in notebook()["cells"]}
    for cell in fetched["cells"]:
        if grade_id(cell):
            cell["source"] = answers[grade_id(cell)]
    hub.ask("PUT", place, {"type": "notebook", "format": "json", "content": fetched})
    hub.exercise("submit")

    teach("nbgrader", "collect", EXERCISE, "--update")
    teach("vramlab", "grade", "02", "--workers", "1")
    teach("nbgrader", "release_feedback", EXERCISE)

    (submitted,) = (
        each for each in hub.exercise("fetch_feedback") if each["status"] == "submitted"
    )
    assert submitted["student_id"] == get_username()
    assert submitted["submissions"][0]["has_local_feedback"]
    (page,) = (home / EXERCISE / "feedback").rglob("*.html")
    assert "(Score: 16.0 / 16.0)" in page.read_text()
