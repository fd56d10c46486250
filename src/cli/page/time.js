// Milliseconds per step by category and interval, of one replica or of the mean over all.
function timesOverSteps(record, which) {
  const replicas = record.replicas.filter(replica => replica.intervals.length > 0);
  const looked = which === 'mean' ? replicas : [record.replicas[which]];
  const points = new Map();
  for (const replica of looked)
    for (const [first, steps, , , outside, , ...times] of replica.intervals) {
      if (steps === 0) continue;
      const point = points.get(first) || {count: 0, times: record.categories.map(() => 0), outside: 0};
      times.forEach((ns, c) => {
        point.times[c] += ns / steps / 1e6;
      });
      point.outside += outside / steps / 1e6;
      ++point.count;
      points.set(first, point);
    }
  return [...points].sort((a, b) => a[0] - b[0]).map(([first, point]) => ({
                                                       first,
                                                       times: point.times.map(ms => ms / point.count),
                                                       outside: point.outside / point.count
                                                     }));
}
const time = {
  id: 'time',
  title: 'Where the time of the steps went',
  has: record => record.replicas.some(replica => replica.steps > 0),
  shape: record => `${record.replicas.length}`,
  build(record) {
    const shown = record.replicas.filter(replica => replica.intervals.length > 0).length;
    const choice = element(
        'select', {
          id: 'choose-replica',
          'aria-label': 'replica',
          onchange: event => {
            chosen.replica = event.target.value === 'mean' ? 'mean' : Number(event.target.value);
            time.draw(current);
          }
        },
        element('option', {value: 'mean'}, 'mean of all replicas'),
        record.replicas.slice(0, shown).map(
            (replica, i) => element('option', {value: String(i)}, replica.name)));
    choice.value = String(chosen.replica);
    return [
      record.replicas.length > 1 ? element('div', {class: 'tools'}, choice) : null,
      element(
          'div', {class: 'plots'}, figure('plot-time', 'over steps', 300),
          figure(
              'plot-replicas', record.replicas.length > 1 ? 'of a mean step, by replica' : 'of a mean step',
              64 + 30 * record.replicas.length)),
      element('p', {class: 'note', id: 'time-note'}), element('div', {id: 'time-table'})
    ];
  },
  draw(record) {
    const points = timesOverSteps(record, chosen.replica);
    const totals = points.map(point => sum(point.times) + point.outside).sort((a, b) => a - b);
    const most = totals[totals.length - 1] || 0;
    // The first steps compile: the others shall be seen beside them.
    const usual = 2.5 * (totals[Math.floor(0.9 * (totals.length - 1))] || 0);
    const clipped = points.length >= 8 && most > 1.6 * usual;
    const [unit, factor] = timeUnit(clipped ? usual : most);
    // What is never seen needs no place in the legend.
    const seen = 0.002 * sum(points.map(point => sum(point.times)));
    const used = record.categories.map((name, c) => ({name, c}))
                     .filter(({c}) => sum(points.map(point => point.times[c])) > seen);
    const sets = used.map(({name, c}) => ({
                            label: words(name),
                            backgroundColor: colourOf(name, c),
                            borderWidth: 0,
                            fill: true,
                            data: points.map(point => ({x: point.first, y: point.times[c] * factor})),
                            pointRadius: points.length < 3 ? 3 : 0,
                            pointHitRadius: 6
                          }));
    if (points.some(point => point.outside > 0))
      sets.push({
        label: 'between steps',
        backgroundColor: colourOf('between'),
        borderWidth: 0,
        fill: true,
        pointRadius: 0,
        data: points.map(point => ({x: point.first, y: point.outside * factor}))
      });
    plot('plot-time', {
      type: 'line',
      data: {datasets: sets},
      options: options(
          axis('step', {
            type: 'linear',
            min: points.length ? points[0].first : 0,
            max: points.length ? points[points.length - 1].first : 1
          }),
          axis(`${unit} per step`, {stacked: true, min: 0, ...(clipped ? {max: usual * factor} : {})}), {
            tooltip: {
              filter: item => item.parsed.y > 0,
              callbacks: {
                title: items => items.length ? `steps from ${items[0].parsed.x}` : '',
                label: item => ` ${item.dataset.label}: ${number(item.parsed.y)} ${unit}`
              }
            }
          })
    });
    document.getElementById('time-note').textContent =
        (clipped ? `The highest interval reaches ${duration(most)} per step and is cut off. ` : '') +
        `A point is ${
            record.interval_steps === 1 ? 'one step' :
                                          `${record.interval_steps} steps`}; the first step took ${
            duration(record.replicas[0].first_ms)}.` +
        (record.sums ? ` All-reduce: ${record.sums}.` : '');

    const longest = Math.max(...record.replicas.map(replica => replica.mean_ms));
    const [meanUnit, meanFactor] = timeUnit(longest);
    const present =
        record.categories.map((name, c) => ({name, c}))
            .filter(({c}) => record.replicas.some(replica => replica.times_ms[c] > 0.0005 * longest));
    plot('plot-replicas', {
      type: 'bar',
      data: {
        labels: record.replicas.map(replica => replica.name.replace(/ \(.*/, '')),
        datasets: present.map(({name, c}) => ({
                                label: words(name),
                                backgroundColor: colourOf(name, c),
                                data: record.replicas.map(replica => replica.times_ms[c] * meanFactor)
                              }))
      },
      options: options(
          axis(`${meanUnit} per step`, {stacked: true, min: 0}),
          axis('', {stacked: true, grid: {display: false}, ticks: {autoSkip: record.replicas.length > 16}}), {
            top: {indexAxis: 'y'},
            legend: {display: false},
            tooltip:
                {callbacks: {label: item => ` ${item.dataset.label}: ${number(item.parsed.x)} ${meanUnit}`}}
          })
    });
    const replicas = record.replicas.length;
    document.getElementById('time-table')
        .replaceChildren(table(['category', 'mean per step', 'share'], present.map(({name, c}) => {
          const mean = sum(record.replicas.map(replica => replica.times_ms[c])) / replicas;
          const share = mean / (sum(record.replicas.map(replica => replica.mean_ms)) / replicas);
          return [
            [element('span', {class: 'swatch', style: `background:${colourOf(name, c)}`}), words(name)],
            duration(mean), [percent(share, 1), meter(share)]
          ];
        })));
  },
};
