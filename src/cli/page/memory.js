const memory = {
  id: 'memory',
  title: 'Memory over time',
  has: record => record.memory.some(device => device.peak > 0),
  shape: record => record.memory.map(device => device.device).join(),
  build(record) {
    const choice = element(
        'select', {
          id: 'choose-device',
          'aria-label': 'device',
          onchange: event => {
            chosen.device = Number(event.target.value);
            memory.draw(current);
          }
        },
        record.memory.map((device, i) => element('option', {value: String(i)}, device.device)));
    choice.value = String(Math.min(chosen.device, record.memory.length - 1));
    return [
      record.memory.length > 1 ? element('div', {class: 'tools'}, choice) : null,
      canvas('plot-memory', 'memory over time by use', 300), element('p', {class: 'note', id: 'memory-note'})
    ];
  },
  draw(record) {
    const device = record.memory[Math.min(chosen.device, record.memory.length - 1)];
    const [unit, factor] = device.peak >= 2 ** 30 ? ['GiB', 2 ** -30] :
        device.peak >= 2 ** 20                    ? ['MiB', 2 ** -20] :
                                                    ['KiB', 2 ** -10];
    const last = device.samples.length ? device.samples[device.samples.length - 1][0] : 0;
    const [time, each] = timeUnit(last);
    const order =
        device.uses
            .map((name, u) => ({name, u, most: Math.max(0, ...device.samples.map(sample => sample[1 + u]))}))
            .filter(use => use.most > 0)
            .sort((a, b) => b.most - a.most);
    plot('plot-memory', {
      type: 'line',
      data: {
        datasets: order.map(
            ({name, u}, i) => ({
              label: name.length > 40 ? `${name.slice(0, 39)}…` : name,
              fill: true,
              borderWidth: 0,
              backgroundColor: kPalette[i % kPalette.length],
              data: device.samples.map(sample => ({x: sample[0] * each, y: sample[1 + u] * factor})),
              stepped: true,
              pointRadius: device.samples.length < 3 ? 3 : 0,
              pointHitRadius: 6
            }))
      },
      options: options(
          axis(`${time} since the run began`, {type: 'linear', min: 0, max: last * each}),
          axis(unit, {stacked: true, min: 0}), {
            tooltip: {
              callbacks: {
                title: items => items.length ? `${number(items[0].parsed.x)} ${time}` : '',
                label: item => ` ${item.dataset.label}: ${number(item.parsed.y)} ${unit}`
              }
            }
          })
    });
    document.getElementById('memory-note').textContent =
        `${device.device}: ${bytes(device.peak)} at the peak` +
        (device.limit > 0 ? ` of ${bytes(device.limit)} that it may use` : '') +
        (device.reserved > 0 ? `; ${bytes(device.reserved)} held from the GPU` : '') +
        (device.samples.length ? '. Samples are taken between steps.' :
                                 '. What it held over time is known to its own worker.');
  },
};
