// Elements. All text becomes text nodes, so texts of queues, messages and errors are never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

// h("td", {class: "number", onclick: f}, "text", node, null): an element. Properties that begin with "on" are listeners.
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

// Set a text only where it is another: the browser then has nothing to lay out again.
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function panel(title, ...content) {
  const [label, ...beside] = [title].flat();
  return h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, label), beside.length > 0 && h("span", {class: "spring"}), beside), ...content);
}

export function facts(rows) {
  return h("dl", {class: "facts"}, rows.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function badge(label, kind = "", title = null) {
  return h("span", {class: `badge ${kind}`, title}, label);
}

// table([["Name", "class"]…], rows of cells): a plain table for few rows; a cell is a text or an element.
export function table(headings, rows, empty) {
  if (!rows.length) return h("p", {class: "empty"}, empty);
  const head = headings.map(([label, kind]) => h("th", {class: kind, scope: "col"}, label));
  const cell = (value, column) => h("td", {class: headings[column][1]}, value);
  const body = rows.map((row) => (row instanceof Node ? row : h("tr", {}, row.map(cell))));
  return h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}
