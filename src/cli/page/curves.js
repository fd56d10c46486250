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
  id: 'curves',
  title: 'Losses and metrics',
  has: record => record.curves.length > 0 || record.losses.length > 1,
  shape: record => [...curveGroups(record).keys()].join() + (record.losses.length > 1),
  build: record => [element(
      'div', {class: 'plots'},
      [...curveGroups(record).keys()].map((base, i) => figure(`plot-curve-${i}`, words(base))),
      record.losses.length > 1 ? figure('plot-losses', 'loss of single steps') : null)],
  draw(record) {
    if (record.losses.length > 1)
      plot('plot-losses', {
        type: 'line',
        data: {
          datasets: [{
            label: 'loss',
            data: record.losses.map(([x, y]) => ({x, y})),
            borderColor: kPalette[0],
            backgroundColor: kPalette[0],
            borderWidth: 1.5,
            pointRadius: 0,
            pointHitRadius: 8
          }]
        },
        options: options(
            axis('step', {type: 'linear', min: 0, max: record.losses[record.losses.length - 1][0]}),
            axis('loss'),
            {legend: {display: false}, tooltip: {callbacks: {title: items => `step ${items[0].parsed.x}`}}})
      });
    [...curveGroups(record)].forEach(([base, group], i) => {
      const few = record.history_epochs.length < 40;
      plot(`plot-curve-${i}`, {
        type: 'line',
        data: {
          datasets: group.map((curve, k) => ({
                                label: curve.name.startsWith('val_') ? 'validation' : 'training',
                                borderColor: kPalette[k],
                                backgroundColor: kPalette[k],
                                data: curve.values.map((y, p) => ({x: record.history_epochs[p] + 1, y})),
                                borderWidth: 2,
                                pointRadius: few ? 3 : 0,
                                borderDash: curve.name.startsWith('val_') ? [6, 3] : [],
                                pointHitRadius: 8,
                                tension: 0
                              }))
        },
        options: options(
            axis('epoch', {type: 'linear', bounds: 'data', ticks: {precision: 0}}), axis(words(base)),
            {tooltip: {callbacks: {title: items => `epoch ${items[0].parsed.x}`}}})
      });
    });
  },
};
