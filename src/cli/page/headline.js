// What stands above the plots, and the configuration below them.

function headline(record) {
  if (!isRun(record))
    return [element('div', {class: 'headline'}, element('h1', {}, (record.scale || record.plan).model))];
  const dead = record.seems_dead;
  const state = dead ? 'killed' : record.state;
  const until = record.updated_ms - record.started_ms;
  const replica = record.replicas[0];
  const tiles = [];
  const tile = (value, what) =>
      tiles.push(element('div', {class: 'tile'}, element('b', {}, value), element('span', {}, what)));
  if (record.examples_per_second > 0) tile(number(record.examples_per_second), 'examples/s while stepping');
  if (replica && replica.steps > 0)
    tile(duration(replica.mean_ms), `per step (median ${duration(replica.median_ms)})`);
  tile(
      number(record.step, 12),
      record.epochs ?
          `steps · epoch ${Math.min(record.epoch + (record.state === 'running' ? 1 : 0), record.epochs)} of ${
              record.epochs}` :
          'steps');
  for (const curve of [...record.curves].sort((a, b) => /loss$/.test(b.name) - /loss$/.test(a.name))) {
    const last = [...curve.values].reverse().find(value => value !== null);
    if (last !== undefined && tiles.length < 7) tile(number(last, 4), words(curve.name));
  }
  const peak = Math.max(0, ...record.memory.map(memory => memory.peak));
  if (peak > 0)
    tile(
        bytes(peak),
        record.memory.length > 1 ? `at the peak, the most of ${record.memory.length} devices` :
                                   'of memory at the peak');
  return [
    element(
        'div', {class: 'headline'}, element('h1', {}, record.model || 'A run'),
        element('span', {class: `badge ${dead ? 'dead' : record.state}`}, state)),
    element(
        'div', {class: 'quiet'},
        `${new Date(record.started_ms).toLocaleString()} · ${duration(until)}` +
            ` · ${record.replicas.length} replica${record.replicas.length === 1 ? '' : 's'} · process ${
                record.process} on ${record.host}`),
    record.others_ms > 0 && record.state === 'running' ?
        element(
            'div', {class: 'quiet'},
            `Other workers as of ${new Date(record.others_ms).toLocaleTimeString()}`) :
        null,
    element('div', {class: 'tiles'}, tiles)
  ].filter(child => child !== null);
}

function verdicts(record) {
  if (record.verdicts.length === 0) {
    const replica = record.replicas[0];
    if (!replica || replica.steps < 4)
      return [element('p', {class: 'quiet'}, 'Too few steps to say anything yet.')];
    return [element('p', {}, `Nothing: the run is healthy${record.bound ? `; ${record.bound.replaceAll('_', ' ')}` : ''}.`)];
  }
  return record.verdicts.map(
      verdict => element('article', {class: 'verdict'}, element('h3', {}, verdict.cause), element('dl', {}, [
                           ['verdict', verdict.id], ['evidence', verdict.evidence],
                           ['fix', element('code', {}, verdict.fix)], ['gain', verdict.gain]
                         ].map(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]))));
}

function configuration(record) {
  const lines = [];
  const add = (name, value) => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value))
      for (const [key, inner] of Object.entries(value)) add(name ? `${name}.${key}` : key, inner);
    else
      lines.push([name, typeof value === 'string' ? value : JSON.stringify(value)]);
  };
  add('', record.configuration);
  return lines.length ? [facts(lines)] : [element('p', {class: 'quiet'}, 'The program has given none.')];
}
