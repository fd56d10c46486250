'use strict';
// Draws the record of a run (docs/record.md). All text goes into the page as text, never as markup. A section is an entry of
// `sections`: what it is called, whether the record has it, and how it is drawn; drawing again changes what is there.

// ---- numbers for people ----

const number = (value, digits = 3) => Number.isFinite(value)
  ? (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(digits)))) : '–';
const percent = (share, digits = 0) => Number.isFinite(share) ? `${(100 * share).toFixed(digits)}%` : '–';
const scaled = (value, units, step) => {
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(value) >= step) value /= step, ++unit;
  return `${number(value)} ${units[unit]}`;
};
const bytes = value => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const rate = (value, unit) => scaled(value, ['', 'k', 'M', 'G', 'T', 'P'], 1000).replace(/ (\D?)$/, ` $1${unit}`);
const duration = ms => {
  if (!Number.isFinite(ms)) return '–';
  if (ms < 1e-3) return `${number(ms * 1e6)} ns`;
  if (ms < 1) return `${number(ms * 1e3)} µs`;
  if (ms < 1e3) return `${number(ms)} ms`;
  if (ms < 120e3) return `${number(ms / 1e3)} s`;
  const minutes = Math.floor(ms / 60e3);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
};
const words = name => name.replace(/_/g, ' ');
// One unit for an axis, from its largest value in milliseconds.
const timeUnit = most => most < 1e-3 ? ['ns', 1e6] : most < 1 ? ['µs', 1e3] : most < 1e3 ? ['ms', 1] : ['s', 1e-3];
const sum = values => values.reduce((a, b) => a + b, 0);

// ---- elements ----

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') made.style.cssText = value;
    else made.setAttribute(name, value);
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return made;
}
function table(head, rows, marked = () => false) {
  return element('div', {class: head.length > 4 ? 'scroll wide' : 'scroll', tabindex: '0', role: 'region', 'aria-label': 'table'}, element('table', {},
    element('thead', {}, element('tr', {}, head.map(cell => element('th', {scope: 'col'}, cell)))),
    element('tbody', {}, rows.map((row, i) =>
      element('tr', marked(i) ? {class: 'marked'} : {}, row.map(cell => element('td', {}, cell)))))));
}
const meter = share => element('span', {class: 'meter', 'aria-hidden': 'true'},
  element('i', {style: `width:${Math.max(0, Math.min(100, 100 * share))}%`}));
const facts = pairs => element('dl', {class: 'facts'}, pairs.map(([name, value]) =>
  [element('dt', {}, name), element('dd', {}, value)]));

// ---- colours ----

// Told apart by people who see fewer colours too, on light and dark ground.
const kCategoryColours = {
  compute: '#3b82d6', input_wait: '#e6862e', copy: '#8c6bd1', exposed_communication: '#c94f8a', waiting_for_others: '#d9b02c',
  host: '#2fa084', compile: '#7a8b3c', descheduled: '#a0705a', idle: '#9aa4b1', unattributed: '#6b7684', between: '#b9c0c9',
};
const kPalette = ['#3b82d6', '#e6862e', '#2fa084', '#c94f8a', '#8c6bd1', '#d9b02c', '#4fa8c9', '#a0705a', '#7a8b3c', '#9aa4b1'];
const colourOf = (name, index = hash(name)) => kCategoryColours[name] || kPalette[index % kPalette.length];
function hash(text) {
  let value = 7;
  for (const letter of text) value = (value * 31 + letter.codePointAt(0)) >>> 0;
  return value;
}
const theme = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// ---- plots ----

const charts = new Map();  // by canvas id
function canvas(id, label, height) {
  return element('div', {class: 'canvas', style: height ? `height:${height}px` : ''},
    element('canvas', {id, role: 'img', 'aria-label': label}));
}
const figure = (id, title, height) => element('figure', {}, element('figcaption', {}, title), canvas(id, title, height));
const axis = (title, {ticks, ...more} = {}) => ({
  title: {display: title !== '', text: title, color: theme('quiet')},
  ticks: {color: theme('quiet'), maxRotation: 0, autoSkipPadding: 14, includeBounds: false, ...ticks},
  grid: {color: theme('grid'), drawBorder: false}, ...more});
// Draws, or draws anew with other data.
function plot(id, config) {
  const target = document.getElementById(id);
  if (!target) return null;
  const known = charts.get(id);
  if (known && known.canvas === target && known.config.type === config.type) {
    const hidden = new Set(known.data.datasets.filter((_, i) => !known.isDatasetVisible(i)).map(set => set.label));
    for (const set of config.data.datasets) set.hidden = hidden.has(set.label);
    known.data = config.data;
    known.options = config.options;
    known.update('none');
    return known;
  }
  if (known) known.destroy();
  const chart = new Chart(target, config);
  charts.set(id, chart);
  return chart;
}
function options(x, y, more = {}) {
  return {
    animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
    interaction: {mode: 'index', intersect: false, ...more.interaction},
    scales: {x, y},
    plugins: {
      legend: {position: 'bottom', labels: {color: theme('text'), usePointStyle: true, boxWidth: 8, boxHeight: 8, padding: 12}, ...more.legend},
      tooltip: {backgroundColor: theme('text'), titleColor: theme('card'), bodyColor: theme('card'), footerColor: theme('card'),
                padding: 9, boxPadding: 4, ...more.tooltip},
    }, ...more.top};
}

// ---- sections ----

const chosen = {replica: 'mean', device: 0};  // what the reader looks at

function headline(record) {
  const dead = record.seems_dead;
  const state = dead ? 'killed' : record.state;
  const until = record.updated_ms - record.started_ms;
  const replica = record.replicas[0];
  const tiles = [];
  const tile = (value, what) => tiles.push(element('div', {class: 'tile'}, element('b', {}, value), element('span', {}, what)));
  if (record.examples_per_second > 0) tile(number(record.examples_per_second), 'examples/s while stepping');
  if (replica && replica.steps > 0)
    tile(duration(replica.mean_ms), `per step (median ${duration(replica.median_ms)})`);
  tile(number(record.step, 12), record.epochs ? `steps · epoch ${Math.min(record.epoch + (record.state === 'running' ? 1 : 0), record.epochs)} of ${record.epochs}` : 'steps');
  for (const curve of [...record.curves].sort((a, b) => /loss$/.test(b.name) - /loss$/.test(a.name))) {
    const last = [...curve.values].reverse().find(value => value !== null);
    if (last !== undefined && tiles.length < 7) tile(number(last, 4), words(curve.name));
  }
  const peak = Math.max(0, ...record.memory.map(memory => memory.peak));
  if (peak > 0) tile(bytes(peak), record.memory.length > 1 ? `at the peak, the most of ${record.memory.length} devices` : 'of memory at the peak');
  return [
    element('div', {class: 'headline'}, element('h1', {}, record.model || 'A run'),
      element('span', {class: `badge ${dead ? 'dead' : record.state}`}, state)),
    element('div', {class: 'quiet'}, `${new Date(record.started_ms).toLocaleString()} · ${duration(until)}`
      + ` · ${record.replicas.length} replica${record.replicas.length === 1 ? '' : 's'} · process ${record.process} on ${record.host}`),
    element('div', {class: 'tiles'}, tiles)];
}

function verdicts(record) {
  if (record.verdicts.length === 0) {
    const replica = record.replicas[0];
    if (!replica || replica.steps < 4) return [element('p', {class: 'quiet'}, 'Too few steps to say anything yet.')];
    const largest = replica.times_ms.indexOf(Math.max(...replica.times_ms));
    return [element('p', {}, `Nothing stands out. Most of a step is ${words(record.categories[largest])}: `
      + `${percent(replica.times_ms[largest] / replica.mean_ms)} of ${duration(replica.mean_ms)}.`)];
  }
  return record.verdicts.map(verdict => element('article', {class: 'verdict'},
    element('h3', {}, verdict.cause),
    element('dl', {}, [['verdict', verdict.id], ['evidence', verdict.evidence], ['fix', element('code', {}, verdict.fix)], ['gain', verdict.gain]]
      .map(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]))));
}

// A loss and its validation share a plot.
function curveGroups(record) {
  const groups = new Map();
  for (const curve of [...record.curves].sort((a, b) => /loss$/.test(b.name) - /loss$/.test(a.name))) {
    const base = curve.name.replace(/^val_/, '');
    if (!groups.has(base)) groups.set(base, []);
    groups.get(base).push(curve);
  }
  return groups;
}
const curves = {
  id: 'curves', title: 'Losses and metrics',
  has: record => record.curves.length > 0 || record.losses.length > 1,
  shape: record => [...curveGroups(record).keys()].join() + (record.losses.length > 1),
  build: record => [element('div', {class: 'plots'},
    [...curveGroups(record).keys()].map((base, i) => figure(`plot-curve-${i}`, words(base))),
    record.losses.length > 1 ? figure('plot-losses', 'loss of single steps') : null)],
  draw(record) {
    if (record.losses.length > 1)
      plot('plot-losses', {type: 'line', data: {datasets: [{label: 'loss', data: record.losses.map(([x, y]) => ({x, y})),
        borderColor: kPalette[0], backgroundColor: kPalette[0], borderWidth: 1.5, pointRadius: 0, pointHitRadius: 8}]},
        options: options(axis('step', {type: 'linear', bounds: 'data'}), axis('loss'), {legend: {display: false},
          tooltip: {callbacks: {title: items => `step ${items[0].parsed.x}`}}})});
    [...curveGroups(record)].forEach(([base, group], i) => {
      const few = record.history_epochs.length < 40;
      plot(`plot-curve-${i}`, {type: 'line', data: {datasets: group.map((curve, k) => ({
        label: curve.name.startsWith('val_') ? 'validation' : 'training', borderColor: kPalette[k], backgroundColor: kPalette[k],
        data: curve.values.map((y, p) => ({x: record.history_epochs[p] + 1, y})), borderWidth: 2, pointRadius: few ? 3 : 0,
        borderDash: curve.name.startsWith('val_') ? [6, 3] : [], pointHitRadius: 8, tension: 0}))},
        options: options(axis('epoch', {type: 'linear', bounds: 'data', ticks: {precision: 0}}), axis(words(base)),
          {tooltip: {callbacks: {title: items => `epoch ${items[0].parsed.x}`}}})});
    });
  },
};

// Milliseconds per step by category and interval, of one replica or of the mean over all.
function timesOverSteps(record, which) {
  const replicas = record.replicas.filter(replica => replica.intervals.length > 0);
  const looked = which === 'mean' ? replicas : [record.replicas[which]];
  const points = new Map();
  for (const replica of looked)
    for (const [first, steps, , , outside, , ...times] of replica.intervals) {
      if (steps === 0) continue;
      const point = points.get(first) || {count: 0, times: record.categories.map(() => 0), outside: 0};
      times.forEach((ns, c) => { point.times[c] += ns / steps / 1e6; });
      point.outside += outside / steps / 1e6;
      ++point.count;
      points.set(first, point);
    }
  return [...points].sort((a, b) => a[0] - b[0]).map(([first, point]) => (
    {first, times: point.times.map(ms => ms / point.count), outside: point.outside / point.count}));
}
const time = {
  id: 'time', title: 'Where the time of the steps went',
  has: record => record.replicas.some(replica => replica.steps > 0),
  shape: record => `${record.replicas.length}`,
  build(record) {
    const shown = record.replicas.filter(replica => replica.intervals.length > 0).length;
    const choice = element('select', {id: 'choose-replica', 'aria-label': 'replica', onchange: event => {
      chosen.replica = event.target.value === 'mean' ? 'mean' : Number(event.target.value);
      time.draw(current);
    }}, element('option', {value: 'mean'}, 'mean of all replicas'),
      record.replicas.slice(0, shown).map((replica, i) => element('option', {value: String(i)}, replica.name)));
    choice.value = String(chosen.replica);
    return [record.replicas.length > 1 ? element('div', {class: 'tools'}, choice) : null,
      element('div', {class: 'plots'}, figure('plot-time', 'over steps', 300),
        figure('plot-replicas', record.replicas.length > 1 ? 'of a mean step, by replica' : 'of a mean step', 64 + 30 * record.replicas.length)),
      element('p', {class: 'note', id: 'time-note'}), element('div', {id: 'time-table'})];
  },
  draw(record) {
    const points = timesOverSteps(record, chosen.replica);
    const totals = points.map(point => sum(point.times) + point.outside).sort((a, b) => a - b);
    const most = totals[totals.length - 1] || 0;
    // The first steps compile: the others shall be seen beside them.
    const usual = 2.5 * (totals[Math.floor(0.9 * (totals.length - 1))] || 0);
    const clipped = points.length >= 8 && most > 1.6 * usual;
    const [unit, factor] = timeUnit(clipped ? usual : most);
    const used = record.categories.map((name, c) => ({name, c})).filter(({c}) => points.some(point => point.times[c] > 0));
    const sets = used.map(({name, c}) => ({label: words(name), backgroundColor: colourOf(name, c), borderWidth: 0, fill: true,
      data: points.map(point => ({x: point.first, y: point.times[c] * factor})), pointRadius: points.length < 3 ? 3 : 0, pointHitRadius: 6}));
    if (points.some(point => point.outside > 0))
      sets.push({label: 'between steps', backgroundColor: colourOf('between'), borderWidth: 0, fill: true, pointRadius: 0,
        data: points.map(point => ({x: point.first, y: point.outside * factor}))});
    plot('plot-time', {type: 'line', data: {datasets: sets},
      options: options(axis('step', {type: 'linear', bounds: 'data'}), axis(`${unit} per step`, {stacked: true, min: 0, ...(clipped ? {max: usual * factor} : {})}),
        {tooltip: {filter: item => item.parsed.y > 0, callbacks: {
          title: items => items.length ? `steps from ${items[0].parsed.x}` : '', label: item => ` ${item.dataset.label}: ${number(item.parsed.y)} ${unit}`}}})});
    document.getElementById('time-note').textContent =
      (clipped ? `The highest interval reaches ${duration(most)} per step and is cut off. ` : '')
      + `A point is ${record.interval_steps === 1 ? 'one step' : `${record.interval_steps} steps`}; the first step took ${duration(record.replicas[0].first_ms)}.`
      + (record.sums ? ` All-reduce: ${record.sums}.` : '');

    const longest = Math.max(...record.replicas.map(replica => replica.mean_ms));
    const [meanUnit, meanFactor] = timeUnit(longest);
    const present = record.categories.map((name, c) => ({name, c})).filter(({c}) => record.replicas.some(replica => replica.times_ms[c] > 0.0005 * longest));
    plot('plot-replicas', {type: 'bar', data: {labels: record.replicas.map(replica => replica.name.replace(/ \(.*/, '')),
      datasets: present.map(({name, c}) => ({label: words(name), backgroundColor: colourOf(name, c), data: record.replicas.map(replica => replica.times_ms[c] * meanFactor)}))},
      options: options(axis(`${meanUnit} per step`, {stacked: true, min: 0}), axis('', {stacked: true, grid: {display: false}, ticks: {autoSkip: record.replicas.length > 16}}),
        {top: {indexAxis: 'y'}, legend: {display: false}, tooltip: {callbacks: {label: item => ` ${item.dataset.label}: ${number(item.parsed.x)} ${meanUnit}`}}})});
    const replicas = record.replicas.length;
    document.getElementById('time-table').replaceChildren(table(['category', 'mean per step', 'share'], present.map(({name, c}) => {
      const mean = sum(record.replicas.map(replica => replica.times_ms[c])) / replicas;
      const share = mean / (sum(record.replicas.map(replica => replica.mean_ms)) / replicas);
      return [[element('span', {class: 'swatch', style: `background:${colourOf(name, c)}`}), words(name)], duration(mean), [percent(share, 1), meter(share)]];
    })));
  },
};

// Spans as bars from their start to their end, a row per track.
const timeline = {
  id: 'timeline', title: 'Some steps in full',
  has: record => record.timeline !== null && record.timeline.spans.length > 0,
  shape: record => `${record.timeline.rows.length}`,
  build(record) {
    const button = (text, label, action) => element('button', {type: 'button', 'aria-label': label, title: label, onclick: action}, text);
    const plotted = canvas('plot-timeline', 'timeline of some steps; drag to zoom', 74 + 24 * record.timeline.rows.length);
    plotted.classList.add('timeline');
    const selection = element('div', {class: 'selection'});
    plotted.append(selection);
    const target = plotted.querySelector('canvas');
    target.tabIndex = 0;
    let from = null;
    const place = event => event.clientX - target.getBoundingClientRect().left;
    target.addEventListener('pointerdown', event => { from = place(event); target.setPointerCapture(event.pointerId); });
    target.addEventListener('pointermove', event => {
      if (from === null) return;
      const to = place(event);
      selection.style.cssText = `display:block;left:${Math.min(from, to)}px;width:${Math.abs(to - from)}px`;
    });
    const end = event => {
      if (from === null) return;
      const scale = charts.get('plot-timeline').scales.x;
      const [a, b] = [from, place(event)].sort((x, y) => x - y).map(x => scale.getValueForPixel(x));
      selection.style.display = 'none';
      if (Math.abs(place(event) - from) > 8) timeline.zoom(a, b);
      from = null;
    };
    target.addEventListener('pointerup', end);
    target.addEventListener('pointercancel', () => { from = null; selection.style.display = 'none'; });
    target.addEventListener('dblclick', () => timeline.zoom());
    target.addEventListener('keydown', event => {
      const moves = {'+': [0.5, 0], '=': [0.5, 0], '-': [2, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25], 0: [Infinity, 0]};
      if (!(event.key in moves)) return;
      event.preventDefault();
      timeline.move(...moves[event.key]);
    });
    return [element('p', {class: 'quiet'}, `${record.timeline.steps} step${record.timeline.steps === 1 ? '' : 's'} from step ${record.timeline.first_step} on. Drag over a part to zoom into it.`),
      element('div', {class: 'tools'},
        button('+', 'zoom in', () => timeline.move(0.5, 0)), button('−', 'zoom out', () => timeline.move(2, 0)),
        button('◀', 'earlier', () => timeline.move(1, -0.5)), button('▶', 'later', () => timeline.move(1, 0.5)),
        button('All', 'all of it', () => timeline.zoom()), element('span', {class: 'quiet', id: 'timeline-range', 'aria-live': 'polite'})),
      plotted, element('p', {class: 'note', id: 'timeline-span'}, 'Click a bar to see what it is.')];
  },
  length: record => Math.max(...record.timeline.spans.map(span => span[3] + span[4])) / 1e6,
  move(factor, shift) {
    const x = charts.get('plot-timeline').scales.x;
    const width = Math.min(timeline.whole, Math.max((x.max - x.min) * factor, timeline.whole / 1e5));
    const middle = (x.min + x.max) / 2 + shift * (x.max - x.min);
    timeline.zoom(middle - width / 2, middle + width / 2);
  },
  zoom(from = 0, to = timeline.whole) {
    const width = Math.min(to - from, timeline.whole);
    const begin = Math.min(Math.max(0, from), timeline.whole - width);
    timeline.range = [begin, begin + width];
    timeline.draw(current);
  },
  draw(record) {
    const {rows, names, spans} = record.timeline;
    if (timeline.whole !== timeline.length(record) * timeline.factor) timeline.range = null;
    const [unit, factor] = timeUnit(timeline.length(record));
    timeline.factor = factor;
    timeline.whole = timeline.length(record) * factor;
    const [min, max] = timeline.range || [0, timeline.whole];
    const seen = spans.filter(([, , , start, length]) => start / 1e6 * factor <= max && (start + length) / 1e6 * factor >= min);
    const colours = seen.map(([, name, category]) => names[name] === 'step' ? theme('grid') : names[category] === 'step' ? colourOf(names[name]) : colourOf('', hash(names[name].split(' ')[0])));
    plot('plot-timeline', {type: 'bar', data: {labels: rows.map((_, i) => String(i)), datasets: [{label: 'spans', grouped: false,
      data: seen.map(([row, , , start, length]) => ({x: [start / 1e6 * factor, (start + length) / 1e6 * factor], y: String(row)})),
      backgroundColor: colours, hoverBackgroundColor: colours, borderSkipped: false, borderColor: theme('card'), borderWidth: 0.5, barPercentage: 1, categoryPercentage: 0.82, minBarLength: 1}]},
      options: options(axis(unit, {type: 'linear', min, max, ticks: {autoSkipPadding: 18, callback: value => number(value, 5)}}),
        axis('', {type: 'category', grid: {display: false}, ticks: {autoSkip: false,
          callback: (_, i) => { const text = rows[i].group === 'host' || rows[i].group === 'steps' ? rows[i].name : `${rows[i].group} ${rows[i].name}`; return text.length > 18 ? `${text.slice(0, 17)}…` : text; }}}),
        {legend: {display: false}, interaction: {mode: 'point', intersect: true},
          top: {indexAxis: 'y', onClick: (event, items) => { if (items.length) timeline.tell(seen[items[items.length - 1].index]); }},
          tooltip: {filter: (_, i, items) => i === items.length - 1, callbacks: {
            title: items => items.length ? names[seen[items[0].dataIndex][1]].slice(0, 70) : '', label: item => duration(seen[item.dataIndex][4] / 1e6)}}})});
    document.getElementById('timeline-range').textContent =
      `${number(min, 4)} to ${number(max, 4)} ${unit}`;
    timeline.tell = ([row, name, category, start, length]) => {
      document.getElementById('timeline-span').textContent =
        `${names[name]} (${names[category]}): ${duration(length / 1e6)}, ${duration(start / 1e6)} after the first of these steps began, on ${rows[row].group} ${rows[row].name}`;
    };
  },
};

const input = {
  id: 'input', title: 'The input pipeline',
  has: record => record.input !== null,
  draw: () => {},
  live: true,
  build(record) {
    const {input} = record;
    const rows = [], names = [];
    const add = (stage, depth) => {
      names.push(stage.name);
      rows.push([element('span', {class: 'stage', style: `--depth:${Math.min(depth, 12)}`}, element('span', {class: 'name'}, depth > 0 ? '└ ' : '', element('b', {}, stage.name)),
        stage.arguments ? ` (${stage.arguments})` : '', stage.where ? element('span', {class: 'quiet'}, ` ${stage.where}`) : ''),
      number(stage.elements, 12), number(stage.elements_per_s), stage.elements ? duration(stage.self_ns / 1e6) : '–', [percent(stage.busy), meter(stage.busy / Math.max(1, stage.threads))],
      stage.threads > 0 ? String(stage.threads) : '–', stage.slots > 0 ? `${number(stage.ready)} of ${stage.slots}` : '–', stage.threads > 0 ? percent(stage.waited) : '–']);
      stage.inputs.forEach(below => add(below, depth + 1));
    };
    add(input.root, 0);
    return [
      element('p', {class: 'quiet'}, `The last stage on top. ${number(input.elements, 12)} batches in ${duration(input.seconds * 1e3)}.`),
      table(['stage', 'elements', 'per s', 'time of one', 'busy', 'threads', 'ready', 'waited for'], rows, i => names[i] === input.bottleneck),
      input.bottleneck ? element('p', {class: 'note'}, `${input.bottleneck}: ${input.cause}`) : element('p', {class: 'note'}, input.cause),
      input.fix ? element('pre', {}, input.fix) : null];
  },
};

const memory = {
  id: 'memory', title: 'Memory over time',
  has: record => record.memory.some(device => device.peak > 0),
  shape: record => record.memory.map(device => device.device).join(),
  build(record) {
    const choice = element('select', {id: 'choose-device', 'aria-label': 'device', onchange: event => {
      chosen.device = Number(event.target.value);
      memory.draw(current);
    }}, record.memory.map((device, i) => element('option', {value: String(i)}, device.device)));
    choice.value = String(Math.min(chosen.device, record.memory.length - 1));
    return [record.memory.length > 1 ? element('div', {class: 'tools'}, choice) : null, canvas('plot-memory', 'memory over time by use', 300),
      element('p', {class: 'note', id: 'memory-note'})];
  },
  draw(record) {
    const device = record.memory[Math.min(chosen.device, record.memory.length - 1)];
    const [unit, factor] = device.peak >= 2 ** 30 ? ['GiB', 2 ** -30] : device.peak >= 2 ** 20 ? ['MiB', 2 ** -20] : ['KiB', 2 ** -10];
    const last = device.samples.length ? device.samples[device.samples.length - 1][0] : 0;
    const [time, each] = timeUnit(last);
    const order = device.uses.map((name, u) => ({name, u, most: Math.max(0, ...device.samples.map(sample => sample[1 + u]))}))
      .filter(use => use.most > 0).sort((a, b) => b.most - a.most);
    plot('plot-memory', {type: 'line', data: {datasets: order.map(({name, u}, i) => ({label: name.length > 40 ? `${name.slice(0, 39)}…` : name, fill: true, borderWidth: 0, backgroundColor: kPalette[i % kPalette.length],
      data: device.samples.map(sample => ({x: sample[0] * each, y: sample[1 + u] * factor})), stepped: true, pointRadius: device.samples.length < 3 ? 3 : 0, pointHitRadius: 6}))},
      options: options(axis(`${time} since the run began`, {type: 'linear', bounds: 'data'}), axis(unit, {stacked: true, min: 0}),
        {tooltip: {callbacks: {title: items => items.length ? `${number(items[0].parsed.x)} ${time}` : '', label: item => ` ${item.dataset.label}: ${number(item.parsed.y)} ${unit}`}}})});
    document.getElementById('memory-note').textContent = `${device.device}: ${bytes(device.peak)} at the peak`
      + (device.limit > 0 ? ` of ${bytes(device.limit)} that it may use` : '') + (device.reserved > 0 ? `; ${bytes(device.reserved)} held from the GPU` : '')
      + (device.samples.length ? '. Samples are taken between steps.' : '. What it held over time is known to its own worker.');
  },
};

// The time that a kernel would take at the device's ceiling, as a part of the time that it took.
function shareOfCeiling(kernel, of) {
  const least = Math.max(of.flops_per_second > 0 ? kernel.flops / of.flops_per_second : 0, of.bytes_per_second > 0 ? kernel.bytes / of.bytes_per_second : 0);
  return least > 0 && kernel.total_ns > 0 ? least / (kernel.total_ns * 1e-9) : NaN;
}
const kernels = {
  id: 'kernels', title: 'Kernels by time',
  has: record => record.kernels !== null && record.kernels.list.length > 0,
  shape: record => `${record.kernels.list.length}`,
  build(record) {
    const of = record.kernels;
    const all = of.others.calls > 0 ? [...of.list, of.others] : of.list;
    const whole = sum(all.map(kernel => kernel.total_ns));
    return [
      canvas('plot-kernels', 'the kernels that take longest', 70 + 26 * Math.min(12, of.list.length)),
      element('p', {class: 'note'}, `From ${of.steps} traced step${of.steps === 1 ? '' : 's'}. `
        + (of.flops_per_second > 0 ? `The ceiling: ${rate(of.flops_per_second, 'FLOP/s')} and ${rate(of.bytes_per_second, 'B/s')} (${of.ceiling_is}). More than 100% means that data stays in the caches.` : 'What the device can do at most is not known.')),
      table(['kernel', 'per step', 'share', 'of the ceiling', 'calls', 'FLOP/s', 'bytes/s'], all.map(kernel => {
        const seconds = kernel.total_ns * 1e-9;
        const share = shareOfCeiling(kernel, of);
        return [kernel.name, duration(kernel.total_ns / of.steps / 1e6), percent(kernel.total_ns / whole, 1),
          Number.isFinite(share) ? [percent(share), meter(share)] : '–', number(kernel.calls / of.steps),
          kernel.flops > 0 ? rate(kernel.flops / seconds, '') : '–', kernel.bytes > 0 ? rate(kernel.bytes / seconds, 'B') : '–'];
      }))];
  },
  draw(record) {
    const of = record.kernels;
    const shown = of.list.slice(0, 12);
    const [unit, factor] = timeUnit(shown[0].total_ns / of.steps / 1e6);
    const ms = shown.map(kernel => kernel.total_ns / of.steps / 1e6 * factor);
    const shares = shown.map(kernel => Math.min(1, shareOfCeiling(kernel, of) || 0));
    const room = innerWidth < 560 ? 15 : 34;
    const short = name => name.length > room ? `${name.slice(0, room - 1)}…` : name;
    plot('plot-kernels', {type: 'bar', data: {labels: shown.map(kernel => short(kernel.name)), datasets: [
      {label: 'time at the ceiling', backgroundColor: kPalette[0], data: ms.map((value, i) => value * shares[i])},
      {label: of.flops_per_second > 0 ? 'time beyond it' : 'time', backgroundColor: kPalette[1], data: ms.map((value, i) => value * (1 - shares[i]))}]},
      options: options(axis(`${unit} per step`, {stacked: true, min: 0}), axis('', {stacked: true, grid: {display: false}, ticks: {autoSkip: false}}),
        {top: {indexAxis: 'y'}, tooltip: {callbacks: {title: items => shown[items[0].dataIndex].name.slice(0, 80), label: item => ` ${item.dataset.label}: ${number(item.parsed.x)} ${unit}`}}})});
  },
};

function configuration(record) {
  const lines = [];
  const add = (name, value) => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) for (const [key, inner] of Object.entries(value)) add(name ? `${name}.${key}` : key, inner);
    else lines.push([name, typeof value === 'string' ? value : JSON.stringify(value)]);
  };
  add('', record.configuration);
  return lines.length ? [facts(lines)] : [element('p', {class: 'quiet'}, 'The program has given none.')];
}

// In the order of the page.
const sections = [
  {id: 'verdicts', title: 'What would help most', has: () => true, build: verdicts, draw: () => {}, live: true},
  curves, time, timeline, input, memory, kernels,
  {id: 'configuration', title: 'Configuration', has: () => true, build: configuration, draw: () => {}},
  {id: 'versions', title: 'Versions', has: () => true, build: record => [facts(Object.entries(record.versions))], draw: () => {}},
];

// ---- the page ----

let current = null;
const shapes = new Map();  // what a section was built for: the rest of it can be drawn anew

function show(record) {
  current = record;
  const page = document.getElementById('page');
  if (!document.getElementById('headline')) page.replaceChildren(element('header', {id: 'headline'}),
    ...sections.map(section => element('section', {id: section.id, hidden: ''})), footer());
  document.getElementById('headline').replaceChildren(...headline(record));
  for (const section of sections) {
    const place = document.getElementById(section.id);
    place.hidden = !section.has(record);
    if (place.hidden) continue;
    const shape = section.live ? NaN : section.shape ? section.shape(record) : '';
    if (shapes.get(section.id) !== shape) {
      place.replaceChildren(element('h2', {}, section.title), ...section.build(record).filter(child => child !== null));
      shapes.set(section.id, shape);
    }
    section.draw(record);
  }
}
const drawAgain = () => { for (const section of sections) if (!document.getElementById(section.id).hidden) section.draw(current); };

function footer() {
  return element('footer', {}, element('details', {}, element('summary', {}, 'Licences'),
    element('p', {}, `Drawn with Chart.js ${Chart.version}, which stands in this page:`), element('pre', {}, document.getElementById('licence').textContent)));
}

async function follow() {
  let seen = '';
  while (true) {
    try {
      const answer = await fetch('record.json', {cache: 'no-store'});
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      if (text !== seen) show(JSON.parse(text));
      seen = text;
      if (current.state !== 'running' || current.seems_dead) return;
    } catch (error) {
      if (!current) document.getElementById('page').replaceChildren(element('p', {}, `Waiting for the run: ${error.message}`));
    }
    await new Promise(done => setTimeout(done, 2000));
  }
}

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.defaults.font.size = 12;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => current && drawAgain());
const resizeAll = () => { if (current) { drawAgain(); for (const chart of charts.values()) chart.resize(); } };
addEventListener('beforeprint', resizeAll);
addEventListener('afterprint', resizeAll);
const embedded = JSON.parse(document.getElementById('record').textContent);
if (embedded) show(embedded);
else follow();
