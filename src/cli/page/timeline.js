// Spans as bars from their start to their end, a row per track.
const timeline = {
  id: 'timeline',
  title: 'Some steps in full',
  has: record => record.timeline !== null && record.timeline.spans.length > 0,
  shape: record => `${record.timeline.rows.length}`,
  build(record) {
    const button = (text, label, action) =>
        element('button', {type: 'button', 'aria-label': label, title: label, onclick: action}, text);
    const plotted = canvas(
        'plot-timeline', 'timeline of some steps; drag to zoom', 74 + 24 * record.timeline.rows.length);
    plotted.classList.add('timeline');
    const selection = element('div', {class: 'selection'});
    plotted.append(selection);
    const target = plotted.querySelector('canvas');
    target.tabIndex = 0;
    let from = null;
    const place = event => event.clientX - target.getBoundingClientRect().left;
    target.addEventListener('pointerdown', event => {
      from = place(event);
      target.setPointerCapture(event.pointerId);
    });
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
    target.addEventListener('pointercancel', () => {
      from = null;
      selection.style.display = 'none';
    });
    target.addEventListener('dblclick', () => timeline.zoom());
    target.addEventListener('keydown', event => {
      const moves = {
        '+': [0.5, 0],
        '=': [0.5, 0],
        '-': [2, 0],
        ArrowLeft: [1, -0.25],
        ArrowRight: [1, 0.25],
        0: [Infinity, 0]
      };
      if (!(event.key in moves)) return;
      event.preventDefault();
      timeline.move(...moves[event.key]);
    });
    return [
      element(
          'p', {class: 'quiet'},
          `${record.timeline.steps} step${record.timeline.steps === 1 ? '' : 's'} from step ${
              record.timeline.first_step} on.`,
          element('span', {class: 'hint'}, ' Drag over a part to zoom into it.')),
      element(
          'div', {class: 'tools'}, button('+', 'zoom in', () => timeline.move(0.5, 0)),
          button('−', 'zoom out', () => timeline.move(2, 0)),
          button('◀', 'earlier', () => timeline.move(1, -0.5)),
          button('▶', 'later', () => timeline.move(1, 0.5)),
          button('All', 'all of it', () => timeline.zoom()),
          element('span', {class: 'quiet', id: 'timeline-range', 'aria-live': 'polite'})),
      plotted, element('p', {class: 'note hint', id: 'timeline-span'}, 'Click a bar to see what it is.')
    ];
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
    const seen = spans.filter(
        ([, , , start, length]) => start / 1e6 * factor <= max && (start + length) / 1e6 * factor >= min);
    const colours = seen.map(
        ([, name, category]) => names[name] === 'step' ? theme('grid') :
            names[category] === 'step'                 ? colourOf(names[name]) :
                                                         colourOf('', hash(names[name].split(' ')[0])));
    plot('plot-timeline', {
      type: 'bar',
      data: {
        labels: rows.map((_, i) => String(i)),
        datasets: [{
          label: 'spans',
          grouped: false,
          data: seen.map(
              ([row, , , start, length]) =>
                  ({x: [start / 1e6 * factor, (start + length) / 1e6 * factor], y: String(row)})),
          backgroundColor: colours,
          hoverBackgroundColor: colours,
          borderSkipped: false,
          borderColor: theme('card'),
          borderWidth: 0.5,
          barPercentage: 1,
          categoryPercentage: 0.82,
          minBarLength: 1
        }]
      },
      options: options(
          axis(
              unit,
              {type: 'linear', min, max, ticks: {autoSkipPadding: 18, callback: value => number(value, 5)}}),
          axis('', {
            type: 'category',
            grid: {display: false},
            ticks: {
              autoSkip: false,
              callback: (_, i) => {
                const text = rows[i].group === 'host' || rows[i].group === 'steps' ?
                    rows[i].name :
                    `${rows[i].group} ${rows[i].name}`;
                return text.length > 18 ? `${text.slice(0, 17)}…` : text;
              }
            }
          }),
          {
            legend: {display: false},
            // A bar that ends outside of the part that is shown is there all the same.
            interaction: {mode: 'point', intersect: true, includeInvisible: true},
            top: {
              indexAxis: 'y',
              onClick: (event, items) => {
                if (items.length) timeline.tell(seen[items[items.length - 1].index]);
              }
            },
            tooltip: {
              filter: (_, i, items) => i === items.length - 1,
              callbacks: {
                title: items => items.length ? names[seen[items[0].dataIndex][1]].slice(0, 70) : '',
                label: item => duration(seen[item.dataIndex][4] / 1e6)
              }
            }
          })
    });
    document.getElementById('timeline-range').textContent = `${number(min, 4)} to ${number(max, 4)} ${unit}`;
    timeline.tell = ([row, name, category, start, length]) => {
      document.getElementById('timeline-span').textContent = `${names[name]} (${names[category]}): ${
          duration(length / 1e6)}, ${duration(start / 1e6)} after the first of these steps began, on ${
          rows[row].group} ${rows[row].name}`;
    };
  },
};
