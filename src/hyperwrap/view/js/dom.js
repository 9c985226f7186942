// Elements made of text and elements: nothing here, or anywhere, writes markup.

/**
 * An element with properties, attributes and listeners (`onclick` and so on).
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key in node) /** @type {any} */ (node)[key] = value;
    else if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {Record<string, any>} attributes @param {...(Node | string)} children */
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, `${value}`);
  node.append(...children);
  return node;
}

const ICONS = {
  close: "M5 5l10 10M15 5L5 15",
  contrast: "M10 3a7 7 0 100 14zM10 3a7 7 0 010 14",
  copy: "M7 7h9v9H7zM13 7V4H4v9h3",
  edges: "M10 4l-5 11M10 4l5 11M10 4v0M5 15v0M15 15v0",
  help: "M7.5 7.5a2.5 2.5 0 113.6 2.2c-.8.5-1.1.9-1.1 1.8M10 14.6v.1",
  home: "M3 10l7-6 7 6M5 9v7h10V9",
  save: "M10 3v9M6 9l4 4 4-4M4 16h12",
  search: "M8.5 3.5a5 5 0 100 10 5 5 0 000-10zM12.3 12.3L17 17",
  target: "M10 2v4M10 14v4M2 10h4M14 10h4M10 7a3 3 0 100 6 3 3 0 000-6z",
};

/** A line drawing of 20 by 20. @param {keyof typeof ICONS} name */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 20 20", class: "hw-icon", "aria-hidden": "true" },
    svg("path", { d: ICONS[name] }));
}

/** A button with an icon; its name is read out and shown on hover. */
export function iconButton(/** @type {keyof typeof ICONS} */ name, /** @type {string} */ label,
  /** @type {(event: Event) => void} */ onclick, props = {}) {
  return el("button", { type: "button", class: "hw-tool", title: label, "aria-label": label, onclick, ...props },
    icon(name));
}

/** 1234567 as 1,234,567. @param {number} x */
export const count = (x) => x.toLocaleString("en");

/** Three digits or so. @param {number} x */
export function number(x) {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(1)
    : size >= 100 ? x.toFixed(0) : size >= 10 ? x.toFixed(1) : size >= 1 ? x.toFixed(2) : x.toFixed(3);
  return text.replace("-", "−");
}

/** A name as people say it: "dog" for the synset dog.n.01. @param {string} name */
export function short(name) {
  const synset = /^(.+)\.[nvars]\.\d+$/.exec(name);
  return synset ? synset[1].replaceAll("_", " ") : name;
}
