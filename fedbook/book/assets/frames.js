// Controls over pictures drawn in advance. Native inputs do the keyboard; each picture belongs to one
// combination of positions. Where a combination has none, the controls that were not touched go back.
for (const figure of document.querySelectorAll('figure.frames')) {
  const data = JSON.parse(figure.querySelector('script').textContent);
  const controls = [...figure.querySelectorAll('[data-control]')];
  const image = figure.querySelector('img'), sentence = figure.querySelector('.frames-sentence');
  const positionOf = one => one.type === 'checkbox' ? Number(one.checked) : Number(one.value);

  const put = (one, position, i) => {
    if (one.type === 'checkbox') one.checked = Boolean(position);
    else one.value = position;
    if (one.type === 'range') {
      one.setAttribute('aria-valuetext', data.texts[i][position]);
      one.nextElementSibling.textContent = data.texts[i][position];
    }
  };
  const show = (positions, touched) => {
    if (!(positions in data.frames)) {
      positions = data.start.map((start, i) => i === touched ? positions[i] : start);
    }
    controls.forEach((one, i) => put(one, positions[i], i));
    const [picture, words] = data.frames[positions];
    image.src = `data:image/webp;base64,${data.pictures[picture]}`;
    if (sentence.textContent !== data.sentences[words]) sentence.textContent = data.sentences[words];
  };

  controls.forEach((one, i) => one.addEventListener('input', () => {
    stop();
    show(controls.map(positionOf), i);
  }));
  for (const button of figure.querySelectorAll('[data-at]')) {
    button.addEventListener('click', () => {
      stop();
      show(button.dataset.at.split(',').map(Number), -1);
    });
  }

  const play = figure.querySelector('[data-play]');
  let timer = 0;
  const stop = () => {
    if (!timer) return;
    clearInterval(timer);
    timer = 0;
    play.textContent = 'Play';
    sentence.setAttribute('aria-live', 'polite');
  };
  play?.addEventListener('click', () => {
    if (timer) return stop();
    const i = Number(play.dataset.play), last = data.texts[i].length - 1;
    const step = () => {
      const positions = controls.map(positionOf);
      if (positions[i] >= last) return stop();
      positions[i] += 1;
      show(positions, i);
    };
    play.textContent = 'Pause';
    sentence.setAttribute('aria-live', 'off');  // a reader of the screen would never finish a sentence
    timer = setInterval(step, 330);
    if (positionOf(controls[i]) >= last) show(controls.map((one, j) => j === i ? 0 : positionOf(one)), i);
  });

  for (const part of figure.querySelectorAll('[hidden]')) part.hidden = false;
}
