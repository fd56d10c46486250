const input = {
  id: 'input',
  title: 'The input pipeline',
  has: record => record.input !== null,
  draw: () => {},
  live: true,
  build(record) {
    const {input} = record;
    const rows = [], names = [];
    const add = (stage, depth) => {
      names.push(stage.name);
      rows.push([
        element(
            'span', {class: 'stage', style: `--depth:${Math.min(depth, 12)}`},
            element('span', {class: 'name'}, depth > 0 ? '└ ' : '', element('b', {}, stage.name)),
            stage.arguments ? ` (${stage.arguments})` : '',
            stage.where ? element('span', {class: 'quiet'}, ` ${stage.where}`) : ''),
        number(stage.elements, 12), number(stage.elements_per_s),
        stage.elements ? duration(stage.self_ns / 1e6) : '–',
        [percent(stage.busy), meter(stage.busy / Math.max(1, stage.threads))],
        stage.threads > 0 ? String(stage.threads) : '–',
        stage.slots > 0 ? `${number(stage.ready)} of ${stage.slots}` : '–',
        stage.threads > 0 ? percent(stage.waited) : '–'
      ]);
      stage.inputs.forEach(below => add(below, depth + 1));
    };
    add(input.root, 0);
    return [
      element(
          'p', {class: 'quiet'},
          `The last stage on top. ${number(input.elements, 12)} batches in ${
              duration(input.seconds * 1e3)}.`),
      table(
          ['stage', 'elements', 'per s', 'time of one', 'busy', 'threads', 'ready', 'waited for'], rows,
          i => names[i] === input.bottleneck),
      input.bottleneck ? element('p', {class: 'note'}, `${input.bottleneck}: ${input.cause}`) :
                         element('p', {class: 'note'}, input.cause),
      input.fix ? element('pre', {}, input.fix) : null
    ];
  },
};
