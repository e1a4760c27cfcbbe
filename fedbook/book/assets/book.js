// What every page does: boxes that scroll take the keyboard, and the search over the whole book.
'use strict';

// A box that scrolls can be reached by the keyboard; one that does not is no stop.
const boxes = document.querySelectorAll('.scroll');
const mark = () => boxes.forEach(box => {
  if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
  else box.removeAttribute('tabindex');
});
new ResizeObserver(mark).observe(document.body);
addEventListener('load', mark);
document.fonts.ready.then(mark); // formulas widen when their fonts arrive, and the page need not

// The contents of the page are folded where they would stand before its text.
const fold = document.querySelector('aside details');
const narrow = matchMedia('(max-width: 60rem)');
const set = () => { if (fold) fold.open = !narrow.matches; };
narrow.addEventListener('change', set);
set();

// Search: the index is a script, because a page opened from a folder may not read files. It is loaded when needed.
const search = document.querySelector('.search');
const field = search.querySelector('input'), list = search.querySelector('ol'), said = search.querySelector('output');

const load = () => new Promise(done => {
  if (window.bookIndex) return done();
  const script = document.createElement('script');
  script.src = `${search.dataset.root}assets/search.js`;
  script.onload = done;
  document.head.append(script);
});

// Every word must occur; a word in the heading counts ten times one in the text.
const find = words => window.bookIndex
  .map(([page, heading, url, text]) => {
    const head = `${page} ${heading}`.toLowerCase(), body = text.toLowerCase();
    const scores = words.map(word => 10 * (head.split(word).length - 1) + Math.min(9, body.split(word).length - 1));
    return { page, heading, url, text, score: Math.min(...scores) && scores.reduce((sum, one) => sum + one) };
  })
  .filter(one => one.score)
  .sort((one, other) => other.score - one.score);

const entry = ({ page, heading, url, text }, word) => {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 50);
  const item = document.createElement('li'), link = document.createElement('a');
  const where = document.createElement('small'), near = document.createElement('small');
  link.href = search.dataset.root + url;
  where.textContent = page;
  near.textContent = `${at ? '…' : ''}${text.slice(at, at + 160)}`;
  link.append(heading, where, near);
  item.append(link);
  return item;
};

const show = () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = words.length ? find(words) : [];
  list.replaceChildren(...all.slice(0, 20).map(one => entry(one, words[0])));
  said.textContent = words.length ? `${all.length} found` : '';
  list.hidden = !all.length;
};
const close = () => { list.hidden = true; };

field.addEventListener('focus', load, { once: true });
field.addEventListener('input', () => load().then(show));
document.addEventListener('click', event => search.contains(event.target) || close());
document.addEventListener('keydown', event => {
  const links = [...list.querySelectorAll('a')], at = links.indexOf(document.activeElement);
  if (event.key === '/' && !event.target.closest('input, select, textarea')) field.focus();
  else if (!search.contains(event.target)) return;
  else if (event.key === 'Escape') { close(); field.focus(); }
  else if (event.key === 'Enter' && event.target === field && links.length) links[0].click();
  else if (event.key === 'ArrowDown') (links[at + 1] ?? field).focus();
  else if (event.key === 'ArrowUp') (links[at - 1] ?? field).focus();
  else return;
  event.preventDefault();
});
