// Runs Python beside the page, so that the page answers while it works. Nothing leaves the browser.
import { loadPyodide } from './pyodide/pyodide.mjs';

const started = start();

async function start() {
  const python = await loadPyodide();
  const code = await fetch(new URL('vramlab.zip', import.meta.url));
  if (!code.ok) throw new Error(`${code.url}: ${code.statusText}`);
  python.unpackArchive(await code.arrayBuffer(), 'zip');
  return {
    files: python.FS,
    reports: python.pyimport('docs.in_browser.reports'),
    playground: python.pyimport('docs.in_browser.playground'),
    asJson: python.runPython(`
import dataclasses, json
lambda steps: json.dumps([dataclasses.asdict(step) for step in steps])`),
  };
}

const calls = {
  explainFile({ files, reports }, name, bytes) {
    files.writeFile(name, new Uint8Array(bytes));
    try {
      return reports.explain_file(name);
    } finally {
      files.unlink(name);
    }
  },
  forget: ({ reports }) => reports.forget(),
  timeline: ({ reports }, path, device, settings) => reports.timeline(path, device, settings),
  explainMessage: ({ reports }, text) => reports.explain_message(text),
  play: ({ playground, asJson }, ...program) => JSON.parse(asJson(playground.play(...program))),
};

// Of a Python error the reader gets its last line, unless it is none that vramlab raises on purpose.
function inWords(error) {
  const lines = error.message.trim().split('\n');
  const expected = lines.at(-1).match(/^vramlab\.\S+: (.*)|^docs\.in_browser\.\S+: (.*)/);
  return expected ? expected[1] ?? expected[2] : error.message;
}

self.onmessage = async ({ data: { number, call, values } }) => {
  try {
    self.postMessage({ number, result: calls[call](await started, ...values) });
  } catch (error) {
    self.postMessage({ number, error: inWords(error) });
  }
};
