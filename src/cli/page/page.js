// Draws the record of a run (docs/record.md). A section is an entry of `sections`: what it is called, whether the record has
// it, how it is built, and how it is drawn; drawing again changes what is there. Each stands in a file of its own.

// A page may show a run, how it scales (sections `withoutRun`), or both.
const isRun = record => record.schema !== undefined;

// In the order of the page.
const sections = [
  {
    id: 'verdicts',
    title: 'What would help most',
    has: () => true,
    build: verdicts,
    draw: () => {},
    live: true
  },
  curves,
  time,
  timeline,
  input,
  memory,
  kernels,
  scale,
  plan,
  {id: 'configuration', title: 'Configuration', has: () => true, build: configuration, draw: () => {}},
  {
    id: 'versions',
    title: 'Versions',
    has: () => true,
    build: record => [facts(Object.entries(record.versions))],
    draw: () => {}
  },
];

// ---- the page ----

let current = null;
const shapes = new Map();  // what a section was built for: the rest of it can be drawn anew

function show(record) {
  current = record;
  const page = document.getElementById('page');
  if (!document.getElementById('headline'))
    page.replaceChildren(
        element('header', {id: 'headline'}),
        ...sections.map(section => element('section', {id: section.id, hidden: ''})), footer());
  document.getElementById('headline').replaceChildren(...headline(record));
  for (const section of sections) {
    const place = document.getElementById(section.id);
    place.hidden = !(isRun(record) || section.withoutRun) || !section.has(record);
    if (place.hidden) continue;
    const shape = section.live ? NaN : section.shape ? section.shape(record) : '';
    if (shapes.get(section.id) !== shape) {
      place.replaceChildren(
          element('h2', {}, section.title), ...section.build(record).filter(child => child !== null));
      shapes.set(section.id, shape);
    }
    section.draw(record);
  }
}
const drawAgain = () => {
  for (const section of sections)
    if (!document.getElementById(section.id).hidden) section.draw(current);
};

function footer() {
  return element(
      'footer', {},
      element(
          'details', {}, element('summary', {}, 'Licences'),
          element('p', {}, `Drawn with Chart.js ${Chart.version}, which stands in this page:`),
          element('pre', {}, document.getElementById('licence').textContent)));
}

async function follow() {
  let seen = '';
  while (true) {
    try {
      const answer = await fetch('record.json', {cache: 'no-store'});
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      if (text !== seen) show(JSON.parse(text));
      seen = text;
      if (current.state !== 'running' || current.seems_dead) return;
    } catch (error) {
      if (!current)
        document.getElementById('page').replaceChildren(
            element('p', {}, `Waiting for the run: ${error.message}`));
    }
    await new Promise(done => setTimeout(done, 2000));
  }
}

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.defaults.font.size = 12;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => current && drawAgain());
const resizeAll = () => {
  if (current) {
    drawAgain();
    for (const chart of charts.values()) chart.resize();
  }
};
addEventListener('beforeprint', resizeAll);
addEventListener('afterprint', resizeAll);
const embedded = JSON.parse(document.getElementById('record').textContent);
if (embedded)
  show(embedded);
else
  follow();
