// What the device can do on 16-bit floats; records of earlier versions do not say it.
const halfRate = of => of.half_flops_per_second || of.flops_per_second;
// The time that a kernel would take at the device's ceiling, as a part of the time that it took.
function shareOfCeiling(kernel, of) {
  const half = kernel.half_flops ?? 0;
  const least = Math.max(
      of.flops_per_second > 0 ? (kernel.flops - half) / of.flops_per_second + half / halfRate(of) : 0,
      of.bytes_per_second > 0 ? kernel.bytes / of.bytes_per_second : 0);
  return least > 0 && kernel.total_ns > 0 ? least / (kernel.total_ns * 1e-9) : NaN;
}
const kernels = {
  id: 'kernels',
  title: 'Kernels by time',
  has: record => record.kernels !== null && record.kernels.list.length > 0,
  shape: record => `${record.kernels.list.length}`,
  build(record) {
    const of = record.kernels;
    const all = of.others.calls > 0 ? [...of.list, of.others] : of.list;
    const whole = sum(all.map(kernel => kernel.total_ns));
    return [
      canvas('plot-kernels', 'the kernels that take longest', 70 + 26 * Math.min(12, of.list.length)),
      element(
          'p', {class: 'note'},
          `From ${of.steps} traced step${of.steps === 1 ? '' : 's'}. ` +
              (of.flops_per_second > 0 ?
                   `The ceiling: ${rate(of.flops_per_second, 'FLOP/s')}${
                       halfRate(of) === of.flops_per_second ?
                           '' :
                           ` in float32, ${rate(halfRate(of), 'FLOP/s')} on 16-bit floats`} and ${
                       rate(of.bytes_per_second, 'B/s')} (${
                       of.ceiling_is}). More than 100% means that data stays in the caches.` :
                   'What the device can do at most is not known.')),
      table(
          ['kernel', 'per step', 'share', 'of the ceiling', 'calls', 'FLOP/s', 'bytes/s'], all.map(kernel => {
            const seconds = kernel.total_ns * 1e-9;
            const share = shareOfCeiling(kernel, of);
            return [
              kernel.name, duration(kernel.total_ns / of.steps / 1e6), percent(kernel.total_ns / whole, 1),
              Number.isFinite(share) ? [percent(share), meter(share)] : '–', number(kernel.calls / of.steps),
              kernel.flops > 0 ? rate(kernel.flops / seconds, '') : '–',
              kernel.bytes > 0 ? rate(kernel.bytes / seconds, 'B') : '–'
            ];
          }))
    ];
  },
  draw(record) {
    const of = record.kernels;
    const shown = of.list.slice(0, 12);
    const [unit, factor] = timeUnit(shown[0].total_ns / of.steps / 1e6);
    const ms = shown.map(kernel => kernel.total_ns / of.steps / 1e6 * factor);
    const shares = shown.map(kernel => Math.min(1, shareOfCeiling(kernel, of) || 0));
    const room = innerWidth < 560 ? 15 : 34;
    const short = name => name.length > room ? `${name.slice(0, room - 1)}…` : name;
    plot('plot-kernels', {
      type: 'bar',
      data: {
        labels: shown.map(kernel => short(kernel.name)),
        datasets: [
          {
            label: 'time at the ceiling',
            backgroundColor: kPalette[0],
            data: ms.map((value, i) => value * shares[i])
          },
          {
            label: of.flops_per_second > 0 ? 'time beyond it' : 'time',
            backgroundColor: kPalette[1],
            data: ms.map((value, i) => value * (1 - shares[i]))
          }
        ]
      },
      options: options(
          axis(`${unit} per step`, {stacked: true, min: 0}),
          axis('', {stacked: true, grid: {display: false}, ticks: {autoSkip: false}}), {
            top: {indexAxis: 'y'},
            tooltip: {
              callbacks: {
                title: items => shown[items[0].dataIndex].name.slice(0, 80),
                label: item => ` ${item.dataset.label}: ${number(item.parsed.x)} ${unit}`
              }
            }
          })
    });
  },
};
