// What all plots have in common; Chart.js draws them.

// ---- colours ----

// Told apart by people who see fewer colours too, on light and dark ground.
const kCategoryColours = {
  compute: '#3b82d6',
  input_wait: '#e6862e',
  copy: '#8c6bd1',
  exposed_communication: '#c94f8a',
  waiting_for_others: '#d9b02c',
  host: '#2fa084',
  compiling: '#7a8b3c',
  loop: '#4fa8c9',
  descheduled: '#a0705a',
  idle: '#9aa4b1',
  unattributed: '#6b7684',
  between: '#b9c0c9',
};
const kPalette = [
  '#3b82d6', '#e6862e', '#2fa084', '#c94f8a', '#8c6bd1', '#d9b02c', '#4fa8c9', '#a0705a', '#7a8b3c', '#9aa4b1'
];
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
  return element(
      'div', {class: 'canvas', style: height ? `height:${height}px` : ''},
      element('canvas', {id, role: 'img', 'aria-label': label}));
}
const figure = (id, title, height) =>
    element('figure', {}, element('figcaption', {}, title), canvas(id, title, height));
const axis = (title, {ticks, ...more} = {}) => ({
  title: {display: title !== '', text: title, color: theme('quiet')},
  ticks: {color: theme('quiet'), maxRotation: 0, autoSkipPadding: 14, includeBounds: false, ...ticks},
  grid: {color: theme('grid'), drawBorder: false},
  ...more
});
// Draws, or draws anew with other data.
function plot(id, config) {
  const target = document.getElementById(id);
  if (!target) return null;
  const known = charts.get(id);
  if (known && known.canvas === target && known.config.type === config.type) {
    const hidden =
        new Set(known.data.datasets.filter((_, i) => !known.isDatasetVisible(i)).map(set => set.label));
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
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    normalized: true,
    interaction: {mode: 'index', intersect: false, ...more.interaction},
    scales: {x, y},
    plugins: {
      legend: {
        position: 'bottom',
        labels: {color: theme('text'), usePointStyle: true, boxWidth: 8, boxHeight: 8, padding: 12},
        ...more.legend
      },
      tooltip: {
        backgroundColor: theme('text'),
        titleColor: theme('card'),
        bodyColor: theme('card'),
        footerColor: theme('card'),
        padding: 9,
        boxPadding: 4,
        ...more.tooltip
      },
    },
    ...more.top
  };
}

const chosen = {
  replica: 'mean',
  device: 0
};  // what the reader looks at
