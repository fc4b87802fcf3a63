// A timeline that can be asked: what timeline.py writes into a page, with the data of timeline_view.py.
//
// Time is counted in allocator events: position p fills the x range from p to p + 1. Blocks are
// stacked by category, then by birth. For every column of pixels one position is drawn, the one of
// the column with the most allocated bytes, so that no peak is ever lost; blocks less than a pixel
// high run together in the colour of their category, whatever their number.
(root, data) => {
  const KIB = 1024, LEFT = 70, TOP = 34, BOTTOM = 30, RIGHT = 14, HEIGHT = 380, NOTE = 16, NARROWEST = 4;
  const {categories, names, lines, stages, title} = data;
  const last = data.events + 1;  // where the x axis ends
  const say = (english, ...values) =>  // in the reader's language, with values in place of {}
    values.reduce((told, value) => told.replace('{}', () => value), data.words[english] ?? english);
  const blocks = data.blocks.map(([category, name, line, size, start, end], number) =>
    ({number, category, name: names[name], line: lines[line], size, start, end}));
  const stacked = [...blocks].sort((a, b) => a.category - b.category || a.start - b.start);
  stacked.forEach((block, order) => { block.order = order; });

  // ---- What is allocated at each position ----

  const curve = changes => {  // of pairs [position, bytes more]
    const levels = new Float64Array(last + 1);
    for (const [position, more] of changes) levels[position] += more;
    for (let p = 1; p <= last; p++) levels[p] += levels[p - 1];
    return levels;
  };
  const lives = list => list.flatMap(b => [[b.start, b.size], [b.end, -b.size]]);
  const rest = categories.map((_, category) => curve(data.rest[category]));
  const ofCategory = categories.map((_, category) =>
    curve([...lives(blocks.filter(b => b.category === category)), ...data.rest[category]]));
  const allocated = new Float64Array(last + 1);
  for (const levels of ofCategory) levels.forEach((bytes, p) => { allocated[p] += bytes; });
  const reserved = curve(data.reserved);
  let peak = 0;
  for (let p = 0; p < last; p++) if (allocated[p] > allocated[peak]) peak = p;

  // ---- The elements ----

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const unique = 'vt' + Math.random().toString(36).slice(2);
  const button = (text, name, press) => {
    const element = make('button', {type: 'button', 'aria-label': name, title: name}, text);
    element.addEventListener('click', press);
    return element;
  };
  const canvas = make('canvas', {
    tabindex: 0, role: 'application', 'aria-label': title,
    'aria-describedby': `${unique}-alt ${unique}-keys`, 'data-lm-suppress-shortcuts': 'true',
  });
  const said = make('div', {class: 'vt-said', role: 'status', 'aria-live': 'polite'});
  const legend = make('ul', {class: 'vt-legend', 'aria-label': say('Allocated at this moment')});
  const keys = make('p', {id: `${unique}-keys`},
    say('Hover a block, or move with the arrow keys: left and right go from block to block in the order of allocation, up and down through the stack; Home goes to the peak. Enter or a click pins a block, Escape lets it go. + and - zoom, 0 shows everything; dragging over a stretch zooms into it.'));
  const shown = make('div', {class: 'vt-shown', role: 'group', 'aria-label': title},
    make('div', {class: 'vt-bar'}, make('strong', {}, title),
      make('span', {class: 'vt-buttons'},
        button('+', say('Zoom in'), () => zoom(1 / 2)), button('−', say('Zoom out'), () => zoom(2)),
        button(say('All'), say('All: show everything'), () => zoom(Infinity)))),
    canvas, make('div', {class: 'vt-words'}, said, legend),
    make('details', {}, make('summary', {}, say('Mouse and keyboard')), keys),
    make('p', {id: `${unique}-alt`, hidden: ''}, data.alt));

  // ---- State ----

  let from = 0, to = last;            // the window
  let cursor = peak, current = null;  // a position, and the block that is told of
  let pinned = false, drag = null;
  let width = 0, runs = [], base = null;

  const highest = () => {
    let most = 0;
    for (let p = Math.floor(from); p < Math.min(last, Math.ceil(to)); p++) {
      most = Math.max(most, allocated[p], reserved[p]);
    }
    return most / (HEIGHT - TOP - BOTTOM) * (HEIGHT - TOP - BOTTOM + 20 + noteLines().length * NOTE) || 1;
  };
  const plotWidth = () => Math.max(width - LEFT - RIGHT, 50);
  const xOf = p => LEFT + (p - from) / (to - from) * plotWidth();
  const pOf = x => from + (x - LEFT) / plotWidth() * (to - from);
  let top = 1;
  const yOf = bytes => TOP + (1 - bytes / top) * (HEIGHT - TOP - BOTTOM);
  const bytesOf = y => (1 - (y - TOP) / (HEIGHT - TOP - BOTTOM)) * top;

  // ---- Words ----

  const size = bytes => {
    for (const [unit, name] of [[KIB ** 3, 'GiB'], [KIB ** 2, 'MiB'], [KIB, 'KiB']]) {
      if (bytes >= unit) return `${(bytes / unit).toLocaleString('en', {maximumFractionDigits: 3})} ${name}`;
    }
    return `${bytes} B`;
  };
  const exactly = bytes => bytes < KIB ? size(bytes) : `${size(bytes)} (${bytes.toLocaleString('en')} B)`;
  const stageAt = p => stages.find(([, start, end]) => start < p && p <= end)?.[0];
  const moment = p => stageAt(p) ? say("event {} in '{}'", p, stageAt(p)) : say('event {}', p);
  const lifetime = block => {
    const born = block.start ? say('allocated by {}', moment(block.start)) : say('there before the recording');
    const freed = block.end < last ? say('freed by {}', moment(block.end)) : say('still there at the end');
    return `${born}, ${freed}`;
  };

  const tell = () => {
    said.replaceChildren();
    if (current) {
      const {name, color} = categories[current.category];
      const swatch = make('span', {class: 'vt-swatch', style: `background: ${color}`});
      said.append(
        make('div', {}, swatch, make('strong', {}, current.name || name),
          current.name ? ` (${name}), ` : ', ', exactly(current.size), pinned ? ` · ${say('pinned')}` : ''),
        make('div', {}, make('code', {}, current.line || say('(no Python line)'))),
        make('div', {}, lifetime(current)));
    } else {
      said.append(say('Hover a block, or press an arrow key.'));
    }
    legend.replaceChildren(make('li', {}, say('after {}: {} allocated', moment(cursor), size(allocated[cursor]))));
    categories.forEach(({name, color}, category) => {
      const bytes = ofCategory[category][cursor];
      legend.append(make('li', {class: bytes ? '' : 'vt-none'},
        make('span', {class: 'vt-swatch', style: `background: ${color}`}), `${name} ${size(bytes)}`));
    });
  };

  // ---- Drawing ----

  const findRuns = () => {  // columns of pixels that show the same position, as one run
    runs = [];
    const columns = Math.floor(plotWidth());
    for (let column = 0; column < columns; column++) {
      const begin = Math.floor(from + column * (to - from) / columns);
      const end = Math.floor(from + (column + 1) * (to - from) / columns);
      let position = Math.min(begin, last - 1);
      for (let p = begin + 1; p < end && p < last; p++) {
        if (allocated[p] > allocated[position]) position = p;
      }
      const before = runs.at(-1);
      if (before?.position === position) before.right = LEFT + column + 1;
      else runs.push({position, left: LEFT + column, right: LEFT + column + 1});
    }
  };

  const drawBlocks = (pen, ink) => {
    const births = [...blocks].sort((a, b) => a.start - b.start);
    let live = [], born = 0;
    for (const {position, left, right} of runs) {
      live = live.filter(block => block.end > position);
      let fresh = 0;
      for (; born < births.length && births[born].start <= position; born++) {
        if (births[born].end > position) { live.push(births[born]); fresh++; }
      }
      if (fresh) live.sort((a, b) => a.order - b.order);
      let bytes = 0, next = 0;
      for (let category = 0; category < categories.length; category++) {
        const floor = bytes, edges = [];
        bytes += rest[category][position];
        for (; next < live.length && live[next].category === category; next++) {
          edges.push(bytes);
          bytes += live[next].size;
          if (bytes - edges.at(-1) < 3 * top / HEIGHT) edges.pop();
        }
        if (bytes === floor) continue;
        pen.fillStyle = categories[category].color;
        pen.fillRect(left, yOf(bytes), right - left, yOf(floor) - yOf(bytes));
        pen.fillStyle = ink;
        for (const edge of edges) pen.fillRect(left, yOf(edge) - 0.5, right - left, 0.7);
        pen.fillRect(left, yOf(bytes), right - left, 0.7);
      }
    }
    pen.fillStyle = ink;  // where tall blocks begin
    for (const block of blocks) {
      if (block.start < from || block.start > to || block.size < 6 * top / HEIGHT) continue;
      const below = floorOf(block)[block.start];
      pen.fillRect(xOf(block.start), yOf(below + block.size), 0.7, yOf(below) - yOf(below + block.size));
    }
  };

  const floors = new Map();
  const floorOf = block => {  // what lies below a block, at every position
    if (!floors.has(block)) {
      if (floors.size > 200) floors.clear();
      const lower = stacked.slice(0, block.order);
      const changes = [...lives(lower), ...data.rest.slice(0, block.category + 1).flat()];
      floors.set(block, curve(changes));
    }
    return floors.get(block);
  };

  const nice = (most, count) => {  // a step of 1, 2 or 5 times a power of ten
    const rough = most / count, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map(digit => digit * power).find(step => step >= rough);
  };

  const drawAxes = pen => {
    const unit = [KIB ** 3, KIB ** 2, KIB].find(each => top >= 2 * each) ?? 1;
    const name = {[KIB ** 3]: 'GiB', [KIB ** 2]: 'MiB', [KIB]: 'KiB', 1: 'B'}[unit];
    const step = nice(top / unit, 5);
    pen.textAlign = 'right'; pen.textBaseline = 'middle';
    for (let tick = 0; tick * unit <= top; tick += step) {
      const y = yOf(tick * unit);
      pen.globalAlpha = 0.15; pen.fillRect(LEFT, y, plotWidth(), 1); pen.globalAlpha = 1;
      pen.fillText(tick ? `${+tick.toPrecision(6)} ${name}` : '0', LEFT - 6, y);
    }
    pen.textAlign = 'center'; pen.textBaseline = 'top';
    const events = Math.max(1, nice(to - from, Math.max(2, plotWidth() / 90)));
    for (let p = Math.ceil(from / events) * events; p <= to; p += events) {
      pen.fillRect(xOf(p), HEIGHT - BOTTOM, 1, 4);
      const text = p.toLocaleString('en');
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(xOf(p), width - half - 1), HEIGHT - BOTTOM + 6);
    }
    pen.textAlign = 'right';
    pen.fillText(say('allocator events'), width - RIGHT, HEIGHT - 11);
  };

  const drawStages = pen => {
    const taken = [-Infinity, -Infinity];  // two lines of names, each up to here
    pen.textBaseline = 'bottom'; pen.textAlign = 'center';
    stages.forEach(([name, start, end], number) => {
      const left = Math.max(xOf(start + 1), LEFT), right = Math.min(xOf(end + 1), LEFT + plotWidth());
      if (right <= left) return;
      if (number % 2 === 0) {
        pen.globalAlpha = 0.06; pen.fillRect(left, TOP, right - left, HEIGHT - TOP - BOTTOM); pen.globalAlpha = 1;
      }
      const half = pen.measureText(name).width / 2 + 4;
      const middle = Math.min(Math.max((left + right) / 2, half), width - half);
      const level = taken.findIndex(until => until <= middle - half);
      if (level < 0) return;
      taken[level] = middle + half;
      pen.fillText(name, middle, TOP - 2 - 14 * level);
    });
  };

  const drawLines = (pen, ink) => {
    pen.strokeStyle = ink; pen.lineWidth = 1.2; pen.setLineDash([5, 3]); pen.beginPath();
    runs.forEach(({position, left, right}) => {
      pen.lineTo(left, yOf(reserved[position])); pen.lineTo(right, yOf(reserved[position]));
    });
    if (data.reserved.length && runs.length) {
      pen.stroke();
      pen.textBaseline = 'bottom'; pen.textAlign = 'right';
      pen.fillText(say('reserved'), width - RIGHT, yOf(reserved[runs.at(-1).position]) - 2);
    }
    pen.setLineDash([]);
    for (const [position, bytes] of data.out_of_memory) {
      if (position < from || position > to) continue;
      pen.fillStyle = '#882255'; pen.fillRect(xOf(position) - 1, TOP, 2, HEIGHT - TOP - BOTTOM);
      pen.fillStyle = ink; pen.textBaseline = 'top';
      pen.textAlign = xOf(position) > width / 2 ? 'right' : 'left';
      pen.fillText(` ${say('out of memory: {} more', size(bytes))} `, xOf(position), TOP + 2);
    }
  };

  const drawPeak = pen => {  // on the side where fewer lines come down, and over them
    if (peak < from || to <= peak) return;
    const x = xOf(peak + 0.5), y = yOf(allocated[peak]) - 2, told = say('peak {}', size(allocated[peak]));
    const lines = [...data.notes.map(([p]) => xOf(p + 0.5)), ...data.out_of_memory.map(([p]) => xOf(p))];
    const sides = [[`${told} ▾`, x + 5, -1], [`▾ ${told}`, x - 5, 1]].map(([words, at, way]) => {
      const wide = pen.measureText(words).width, left = way < 0 ? at - wide : at;
      const outside = Math.max(0, LEFT - left, left + wide - width);
      const struck = lines.filter(line => left < line && line < left + wide && Math.abs(line - x) > 6);
      return {words, left, wide, cost: 100 * outside + struck.length};
    });
    if (x <= width / 2) sides.reverse();
    const {words, left, wide} = sides[0].cost <= sides[1].cost ? sides[0] : sides[1];
    pen.textBaseline = 'bottom'; pen.textAlign = 'left';
    pen.clearRect(left, y - 14, wide, 14);  // no block is as high as that
    pen.fillText(words, left, y);
  };

  const noteLines = () => {  // the notes in the window, broken where they are wider than the plot
    const pen = canvas.getContext('2d'), lines = [];
    pen.font = `12px ${getComputedStyle(shown).fontFamily}`;
    for (const [position, text] of data.notes) {
      if (position < from || position >= to) continue;
      let line = '';
      for (const word of text.split(' ')) {
        if (line && pen.measureText(`${line} ${word}`).width > plotWidth() - 10) {
          lines.push({position, line});
          line = word;
        } else line += (line && ' ') + word;
      }
      lines.push({position, line, last: true});
    }
    return lines;
  };

  const drawNotes = pen => {  // above all blocks, each with a line down to its own
    pen.textBaseline = 'middle'; pen.textAlign = 'left';
    noteLines().forEach(({position, line, last}, row) => {
      const x = xOf(position + 0.5), y = TOP + 10 + row * NOTE, wide = pen.measureText(line).width;
      const left = Math.min(Math.max(x - wide / 2, LEFT + 2), width - RIGHT - wide);
      if (last) pen.fillRect(x - 0.5, y + 8, 1, Math.max(yOf(allocated[position]) - y - 8, 0));
      pen.clearRect(left - 2, y - 8, wide + 4, NOTE);
      pen.fillText(line, left, y);
    });
  };

  const drawBlock = (pen, ink) => {  // the outline of the current block over its life
    const parts = runs.filter(({position}) => current.start <= position && position < current.end);
    if (!parts.length) return;
    const floor = floorOf(current), path = new Path2D();
    const ceiling = ({position}) => yOf(floor[position] + current.size);
    parts.forEach(run => { path.lineTo(run.left, ceiling(run)); path.lineTo(run.right, ceiling(run)); });
    parts.reverse().forEach(run => {
      path.lineTo(run.right, yOf(floor[run.position])); path.lineTo(run.left, yOf(floor[run.position]));
    });
    path.closePath();
    pen.globalAlpha = 0.25; pen.fillStyle = ink; pen.fill(path); pen.globalAlpha = 1;
    pen.lineWidth = pinned ? 3 : 2; pen.strokeStyle = ink; pen.stroke(path);
  };

  const penOf = element => {
    const pen = element.getContext('2d'), dense = window.devicePixelRatio || 1;
    element.width = Math.round(width * dense); element.height = Math.round(HEIGHT * dense);
    pen.scale(dense, dense);
    const style = getComputedStyle(shown);
    pen.font = `12px ${style.fontFamily}`; pen.fillStyle = style.color;
    return [pen, style.color];
  };

  const drawBase = () => {
    top = highest();
    findRuns();
    base = document.createElement('canvas');
    const [pen, ink] = penOf(base);
    drawStages(pen); drawAxes(pen); drawBlocks(pen, 'rgba(0, 0, 0, 0.45)');
    pen.fillStyle = ink;
    drawLines(pen, ink);
    drawNotes(pen);
    drawPeak(pen);
  };

  const draw = () => {
    if (!width) return;
    if (!base) drawBase();
    const [pen, ink] = penOf(canvas);
    pen.drawImage(base, 0, 0, width, HEIGHT);
    if (current) drawBlock(pen, ink);
    if (drag && Math.abs(drag.to - drag.from) > 4) {
      pen.globalAlpha = 0.2; pen.fillRect(drag.from, TOP, drag.to - drag.from, HEIGHT - TOP - BOTTOM);
      pen.globalAlpha = 1;
    }
    tell();
  };

  // ---- Moves ----

  const look = (begin, end) => {  // show a window of positions
    const wide = Math.min(Math.max(end - begin, Math.min(NARROWEST, last)), last);
    from = Math.min(Math.max(begin, 0), last - wide);
    to = from + wide;
    base = null;
    draw();
  };
  const zoom = factor => {
    if (factor === Infinity) return look(0, last);
    const middle = cursor >= from && cursor <= to ? cursor + 0.5 : (from + to) / 2;
    const share = (middle - from) / (to - from), wide = (to - from) * factor;
    return look(middle - share * wide, middle + (1 - share) * wide);
  };
  const blockAt = (p, bytes) => {
    let below = 0, category = 0;
    for (const block of stacked) {
      if (!(block.start <= p && p < block.end)) continue;
      for (; category <= block.category; category++) below += rest[category][p];
      if (bytes < below) return null;  // of the smaller ones, which nobody lists
      below += block.size;
      if (bytes < below) return block;
    }
    return null;
  };
  const go = (block, position) => {
    current = block;
    cursor = Math.min(Math.max(position, 0), last - 1);
    if (cursor < from || cursor >= to) {
      const half = (to - from) / 2;
      return look(cursor - half, cursor + half);
    }
    return draw();
  };
  const liveAt = p => stacked.filter(block => block.start <= p && p < block.end);
  const largestAt = p => liveAt(p).reduce((a, b) => a && a.size >= b.size ? a : b, null);
  const beside = step => {
    if (!current) return go(largestAt(cursor), cursor);
    const block = blocks[current.number + step];
    return block && go(block, block.start);
  };
  const above = step => {
    const live = liveAt(cursor), block = live[live.indexOf(current) + step];
    return current ? block && go(block, cursor) : go(largestAt(cursor), cursor);
  };
  const release = () => { pinned = false; current = null; draw(); };
  const actions = {
    ArrowLeft: () => beside(-1), ArrowRight: () => beside(1),
    ArrowUp: () => above(1), ArrowDown: () => above(-1),
    Home: () => go(largestAt(peak), peak),
    Enter: () => { pinned = Boolean(current) && !pinned; draw(); },
    Escape: release, '+': () => zoom(1 / 2), '=': () => zoom(1 / 2), '-': () => zoom(2),
    0: () => zoom(Infinity),
  };
  canvas.addEventListener('keydown', event => {
    const act = actions[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); event.stopPropagation();
    act();
  });

  const hover = event => {
    const p = Math.floor(pOf(event.offsetX));
    if (p < from - 1 || p >= to || event.offsetX < LEFT) return;
    const run = runs.find(({left, right}) => left <= event.offsetX && event.offsetX < right);
    if (!run) return;
    cursor = run.position;
    current = blockAt(cursor, bytesOf(event.offsetY));
    draw();
  };
  canvas.addEventListener('pointermove', event => {
    if (drag) { drag.to = event.offsetX; draw(); } else if (!pinned) hover(event);
  });
  canvas.addEventListener('pointerleave', () => { if (!pinned && !drag) { current = null; draw(); } });
  canvas.addEventListener('pointerdown', event => {
    if (event.pointerType === 'mouse') {
      canvas.setPointerCapture(event.pointerId);
      drag = {from: event.offsetX, to: event.offsetX};
    }
  });
  canvas.addEventListener('pointerup', event => {
    const dragged = drag;
    drag = null;
    if (dragged && Math.abs(dragged.to - dragged.from) > 4) {
      const ends = [pOf(dragged.from), pOf(dragged.to)].sort((a, b) => a - b);
      return look(ends[0], ends[1]);
    }
    pinned = false;
    hover(event);
    pinned = Boolean(current);
    return draw();
  });

  // ---- Into the page ----

  root.querySelector('.vt-static')?.remove();
  root.append(shown);
  new ResizeObserver(() => {
    const now = Math.floor(shown.clientWidth);
    if (now && now !== width) { width = now; base = null; draw(); }
  }).observe(shown);
  const recolor = () => { base = null; draw(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor);
  new MutationObserver(recolor).observe(document.body, {attributes: true});
  new MutationObserver(recolor).observe(document.documentElement, {attributes: true});
}
