// The page docs/explain.md: hands what the reader gives to worker.js, and shows what comes back.

const $ = id => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// ---- Python ----

let worker, waiting = new Map(), calls = 0;

function python(call, ...values) {
  if (!worker) {
    worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data: { number, result, error } }) => {
      const { resolve, reject } = waiting.get(number);
      waiting.delete(number);
      if (error === undefined) resolve(result); else reject(new Error(error));
    };
    worker.onerror = () => stop(
      'Python did not start. Open this page through a web server, in a browser that is not older than 2023; '
      + 'a page that is built without the runtime cannot run (make site fetches it).');
  }
  return new Promise((resolve, reject) => {
    waiting.set(++calls, { resolve, reject });
    worker.postMessage({ number: calls, call, values });
  });
}

function stop(why) {
  worker?.terminate();
  worker = undefined;
  for (const { reject } of waiting.values()) reject(new Error(why));
  waiting.clear();
}

// ---- Reports ----

const report = $('explain-report'), status = $('explain-status'), cancel = $('explain-cancel');

async function explain(names, ask) {
  report.replaceChildren();
  cancel.hidden = false;
  const begun = performance.now();
  const seconds = () => Math.round((performance.now() - begun) / 1000);
  // Screen readers hear the beginning and the end, not each second.
  status.textContent = `Reading ${names} in your browser`;
  const clock = setInterval(() => { $('explain-seconds').textContent = ` · ${seconds()} s`; }, 1000);
  try {
    await python('forget');
    for (const html of await ask()) show(html, report.appendChild(make('div')));
    for (const form of report.querySelectorAll('form')) await drawTimeline(form);
    status.textContent = `Done in ${seconds()} s. Nothing was uploaded.`;
    report.focus();
  } catch (error) {
    status.textContent = `${error.message}`;
  } finally {
    clearInterval(clock);
    $('explain-seconds').textContent = '';
    cancel.hidden = true;
  }
}

function show(html, place) {
  place.innerHTML = html;
  // Scripts that are set as text do not run; elements that are made do.
  for (const script of place.querySelectorAll('script')) {
    script.replaceWith(make('script', {}, script.textContent));
  }
}

async function drawTimeline(form) {
  const { path, device } = form.dataset;
  const chosen = form.querySelector(':checked');
  const settings = 'replay' in chosen.dataset ? chosen.value : undefined;
  const html = await python('timeline', path, Number(device), settings);
  if (chosen.checked) show(html, form.querySelector('.shown'));
}

report.addEventListener('change', ({ target }) => drawTimeline(target.form));

const explainFiles = files => explain([...files].map(file => file.name).join(', '), async () => {
  const reports = [];
  for (const file of files) reports.push(await python('explainFile', file.name, await file.arrayBuffer()));
  return reports;
});

$('explain-file').addEventListener('change', ({ target }) => {
  if (target.files.length) explainFiles(target.files);
});
$('explain-message').addEventListener('submit', event => {
  event.preventDefault();
  explain('your message', async () => [await python('explainMessage', $('explain-text').value)]);
});
$('explain-example').addEventListener('click', ({ target }) => explain('the example', async () => {
  const answer = await fetch(target.dataset.file);
  return [await python('explainFile', 'example.pickle.xz', await answer.arrayBuffer())];
}));
cancel.addEventListener('click', () => stop('Cancelled.'));

// A file may be dropped anywhere on the page.
const area = $('explain-drop');
document.addEventListener('dragover', event => {
  event.preventDefault();
  area.classList.add('over');
});
document.addEventListener('dragleave', () => area.classList.remove('over'));
document.addEventListener('drop', event => {
  event.preventDefault();
  area.classList.remove('over');
  if (event.dataTransfer.files.length) explainFiles(event.dataTransfer.files);
});

// ---- The allocator ----

const playground = $('play'), slider = $('play-step');
let steps = [];

playground.addEventListener('submit', async event => {
  event.preventDefault();
  const { program, settings, memory } = Object.fromEntries(new FormData(playground));
  $('play-status').textContent = 'Running';
  try {
    steps = await python('play', program, settings, memory);
    $('play-status').textContent = steps.some(step => step.failed) ? 'Out of memory.' : '';
  } catch (error) {
    steps = [];
    $('play-status').textContent = error.message;
  }
  $('play-result').hidden = !steps.length;
  slider.max = slider.value = steps.length;
  $('play-table').replaceChildren(...steps.map(({ line, command, effect, allocated_bytes, reserved_bytes }) =>
    make('tr', {}, make('th', { scope: 'row' }, `${line}`), make('td', {}, make('code', {}, command)),
      make('td', {}, effect), make('td', {}, size(allocated_bytes)), make('td', {}, size(reserved_bytes)))));
  draw();
});
slider.addEventListener('input', draw);

function size(bytes) {
  for (const [unit, name] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (bytes >= unit) return `${(bytes / unit).toLocaleString('en', { maximumFractionDigits: 3 })} ${name}`;
  }
  return `${bytes} B`;
}

function draw() {
  const step = steps[slider.value - 1];
  if (!step) return;
  slider.setAttribute('aria-valuetext', `line ${step.line}: ${step.command}`);
  $('play-now').textContent = `After line ${step.line}, ${step.command}: ${size(step.allocated_bytes)} allocated, `
    + `${size(step.reserved_bytes)} reserved in ${step.segments.length} segments`;
  [...$('play-table').rows].forEach((row, number) => row.toggleAttribute('aria-current', number === slider.value - 1));
  const largest = Math.max(...step.segments.map(segment => segment.total_size));
  $('play-segments').replaceChildren(...step.segments.map(segment => {
    const words = segment.blocks.map(block => `${block.name || 'free'} ${size(block.size)}`);
    const stream = segment.stream ? `, stream ${segment.stream}` : '';
    return make('li', {},
      make('span', {}, `${size(segment.total_size)}, ${segment.segment_type} pool${stream}: ${words.join(', ')}`),
      make('div', { class: 'segment', 'aria-hidden': 'true', style: `width: ${100 * segment.total_size / largest}%` },
        ...segment.blocks.map((block, number) => make('span', {
          class: block.name ? 'used' : 'free', title: words[number], style: `flex: ${block.size} 0 0`,
        }, block.name))));
  }));
}
