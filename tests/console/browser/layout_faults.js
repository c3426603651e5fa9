// Returns what is wrong with the layout of a page: elements wider than their place, numbers on several lines, and
// controls or parts that lie on each other.
() => {
  const faults = [];
  const name = (element) => `${element.tagName} ${element.className} ${(element.innerText || "").slice(0, 40)}`;
  const isShown = (element) => element.checkVisibility() && element.getClientRects().length > 0 && !element.closest(".spoken");
  const all = (selector) => [...document.querySelectorAll(selector)].filter(isShown);
  // Of what stands in a part that scrolls down, the box that is seen.
  const boxOf = (element) => {
    const box = element.getBoundingClientRect();
    const frame = element.closest?.(".gallery")?.getBoundingClientRect();
    if (!frame) return box;
    const within = (value) => Math.min(frame.bottom, Math.max(frame.top, value));
    return { left: box.left, right: box.right, top: within(box.top), bottom: within(box.bottom), height: box.height };
  };
  const isOn = (one, other) => {
    const [a, b] = [boxOf(one), boxOf(other)];
    const isApart =
      a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
    return !isApart && !one.contains(other) && !other.contains(one);
  };

  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) faults.push(`the page is ${wide} pixels wider than the window`);

  for (const cell of all(".number, .bar > span:last-child, table.heat:not(.small) td")) {
    const content = document.createRange();
    content.selectNodeContents(cell);
    const line = parseFloat(getComputedStyle(cell).lineHeight);
    if (boxOf(content).height > 1.5 * line) faults.push(`a broken number: ${name(cell)}`);
    if (cell.clientWidth && cell.scrollWidth > cell.clientWidth + 1) faults.push(`a cut number: ${name(cell)}`);
  }

  const scrolled = ".wide, .heat-map";
  for (const element of all("button, input, select, textarea, summary, nav a, table")) {
    if (boxOf(element.closest(scrolled) || element).right > innerWidth + 1) faults.push(`outside: ${name(element)}`);
  }

  const controls = all("button, input, select, textarea, summary, nav a");
  const parts = all(".output > div > *, .output section > *, .charts > figure");
  for (const group of [controls, parts]) {
    group.forEach((one, place) => {
      for (const other of group.slice(place + 1)) if (isOn(one, other)) faults.push(`${name(one)} lies on ${name(other)}`);
    });
  }
  return faults.slice(0, 10);
}
