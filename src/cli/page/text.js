'use strict';
// Numbers and elements for people. All text goes into the page as text, never as markup.

// ---- numbers for people ----

const number = (value, digits = 3) => Number.isFinite(value) ?
    (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') :
                               String(Number(value.toPrecision(digits)))) :
    '–';
const percent = (share, digits = 0) => Number.isFinite(share) ? `${(100 * share).toFixed(digits)}%` : '–';
const scaled = (value, units, step) => {
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(value) >= step) value /= step, ++unit;
  return `${number(value)} ${units[unit]}`;
};
const bytes = value => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const rate = (value, unit) =>
    scaled(value, ['', 'k', 'M', 'G', 'T', 'P'], 1000).replace(/ (\D?)$/, ` $1${unit}`);
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
const timeUnit = most => most < 1e-3 ? ['ns', 1e6] :
    most < 1                         ? ['µs', 1e3] :
    most < 1e3                       ? ['ms', 1] :
                                       ['s', 1e-3];
const sum = values => values.reduce((a, b) => a + b, 0);

// ---- elements ----

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith('on'))
      made.addEventListener(name.slice(2), value);
    else if (name === 'style')
      made.style.cssText = value;
    else
      made.setAttribute(name, value);
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return made;
}
// `kind`: of the first column, "wide" where it has long names, "numbers" where it has none.
function table(head, rows, marked = () => false, kind = head.length > 4 ? 'wide' : '') {
  return element(
      'div', {
        class: `scroll ${kind}`,
        tabindex: '0',
        role: 'region',
        'aria-label': 'table'
      },
      element(
          'table', {},
          element('thead', {}, element('tr', {}, head.map(cell => element('th', {scope: 'col'}, cell)))),
          element(
              'tbody', {},
              rows.map(
                  (row, i) => element(
                      'tr', marked(i) ? {class: 'marked'} : {}, row.map(cell => element('td', {}, cell)))))));
}
const meter = share => element(
    'span', {class: 'meter', 'aria-hidden': 'true'},
    element('i', {style: `width:${Math.max(0, Math.min(100, 100 * share))}%`}));
const facts = pairs => element(
    'dl', {class: 'facts'},
    pairs.map(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
