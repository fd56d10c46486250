// How the training scales: as `lockstep scale` has measured it, and as `lockstep plan` forecasts it (docs/plan.md).

const kForecastColours = {
  compute_s: 'compute',
  host_s: 'host',
  exposed_communication_s: 'exposed_communication',
  stragglers_s: 'waiting_for_others',
  sharing_cores_s: 'descheduled'
};
const kForecastParts = {
  compute_s: 'compute',
  host_s: 'host',
  exposed_communication_s: 'exposed sums',
  stragglers_s: 'the slowest device',
  sharing_cores_s: 'sharing cores'
};

// Bars by number of devices, one on top of the other.
function stacked(id, labels, sets, x, y) {
  plot(id, {
    type: 'bar',
    data: {labels, datasets: sets.map(set => ({...set, backgroundColor: set.colour, maxBarThickness: 64}))},
    options: options(axis(x, {stacked: true}), axis(y, {stacked: true, beginAtZero: true}))
  });
}
// What is reached, beside what would be reached if nothing was lost.
function against(id, labels, reached, ideal, x, y) {
  const line = (label, data, colour, dash) => ({
    label,
    data,
    borderColor: colour,
    backgroundColor: colour,
    borderWidth: 2,
    borderDash: dash,
    pointRadius: dash.length ? 0 : 3,
    pointHitRadius: 8
  });
  plot(id, {
    type: 'line',
    data: {labels, datasets: [line('reached', reached, kPalette[0], []), line('ideal', ideal, kPalette[9], [6, 3])]},
    options: options(axis(x), axis(y, {beginAtZero: true}))
  });
}

// ---- measured ----

const countOf = row => row.workers > 1 ? `${row.workers} × ${row.devices}` : `${row.devices}`;
const scale = {
  id: 'scale',
  withoutRun: true,
  title: 'How it scales here, measured',
  has: record => Boolean(record.scale),
  build: ({scale: made}) => [
    element(
        'p', {class: 'quiet'},
        `${made.model} on ` +
            (made.gpus > 0 ? `${made.gpus} GPU${made.gpus === 1 ? '' : 's'}` :
                             `${made.cores} cores, ${made.threads_per_device} thread${
                                 made.threads_per_device === 1 ? '' : 's'} per device`)),
    ...made.tables.flatMap((one, i) => [
      element(
          'h3', {},
          one.scaling === 'weak' ? 'Weak scaling: the batch grows with the replicas' :
                                   'Strong scaling: the batch of all replicas stays the same'),
      element(
          'div', {class: 'plots'}, figure(`plot-scale-rate-${i}`, 'examples per second'),
          figure(`plot-scale-time-${i}`, 'where the time of a step goes')),
      table(
          ['devices', 'batch', 'per step', 'examples/s', 'speed-up', 'efficiency', 'limited by'],
          one.rows.map(row => [
            countOf(row), number(row.batch_size), duration(row.step_ms), number(row.examples_per_s),
            `${number(row.speedup)}×`, [percent(row.efficiency), meter(row.efficiency)],
            row.verdicts.length ? row.verdicts[0].id : '–'
          ]),
          () => false, 'numbers')
    ])
  ],
  draw({scale: made}) {
    made.tables.forEach((one, i) => {
      const labels = one.rows.map(countOf), first = one.rows[0];
      against(
          `plot-scale-rate-${i}`, labels, one.rows.map(row => row.examples_per_s),
          one.rows.map(row => first.examples_per_s * row.replicas / first.replicas), 'devices', 'examples/s');
      const categories =
          Object.keys(first.breakdown).filter(name => one.rows.some(row => row.breakdown[name] >= 0.005));
      stacked(
          `plot-scale-time-${i}`, labels, categories.map(name => ({
                                                           label: words(name),
                                                           colour: colourOf(name),
                                                           data: one.rows.map(
                                                               row => row.breakdown[name] * row.step_ms)
                                                         })),
          'devices', 'ms per step');
    });
  },
};

// ---- forecast ----

function errorOfForecasts(validation) {
  if (!validation)
    return 'How far it is off is not known: no forecast was compared with a training on the machine that made it.';
  return `On the machine that made it, forecasts for ${validation.model} were off by ${
      percent(validation.mean_error)} in the mean and ${percent(validation.largest_error)} at most; other machines were not compared.`;
}
const plan = {
  id: 'plan',
  withoutRun: true,
  title: 'How it would scale, forecast',
  has: record => Boolean(record.plan),
  build({plan: made}) {
    const link = one => `${one.name} (${rate(one.bytes_per_s, 'B/s')}, ${duration(one.latency_s * 1e3)}; ${one.source}` +
        `${one.assumed ? `; assumed: ${one.assumed}` : ''})`;
    return [
      element(
          'p', {class: 'quiet'},
          `${made.model}, ${made.scaling} scaling, ` +
              (made.device === 'this' ? 'measured on one device' : `computed for ${made.device}`)),
      element('p', {}, errorOfForecasts(made.validation)),
      element(
          'div', {class: 'plots'}, figure('plot-plan-efficiency', 'efficiency against one device'),
          figure('plot-plan-time', 'what a step is made of')),
      table(
          ['devices', 'nodes', 'batch each', 'per step', 'examples/s', 'efficiency', 'memory each', 'worth from'],
          made.rows.map(row => [
            number(row.devices), number(row.nodes), number(row.batch_per_replica), duration(row.step_s * 1e3),
            number(row.examples_per_s), [percent(row.efficiency), meter(row.efficiency)],
            bytes(row.memory_bytes) + (row.fits ? '' : ', does not fit'),
            row.smallest_batch === null ? 'never' :
                                          number(row.smallest_batch) + (row.smallest_batch_fits ? '' : ', does not fit')
          ]),
          () => false, 'numbers'),
      element(
          'p', {class: 'note'},
          `Worth from: the smallest batch per device with an efficiency of ${made.worth}. Inside a node: ${
              link(made.inside)}` +
              (made.between.name ? `; between nodes: ${link(made.between)}.` : '.'))
    ];
  },
  draw({plan: made}) {
    const labels = made.rows.map(row => number(row.devices));
    against(
        'plot-plan-efficiency', labels, made.rows.map(row => 100 * row.efficiency), made.rows.map(() => 100),
        'devices', '%');
    stacked(
        'plot-plan-time', labels,
        Object.keys(kForecastParts)
            .filter(name => made.rows.some(row => row[name] > 0.002 * row.step_s))
            .map(name => ({
                   label: kForecastParts[name],
                   colour: colourOf(kForecastColours[name]),
                   data: made.rows.map(row => row[name] * 1e3)
                 })),
        'devices', 'ms per step');
  },
};
