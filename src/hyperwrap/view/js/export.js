// The picture as PNG or SVG, the selection as CSV.

import { svg } from "./dom.js";

const MOST_NODES = 20000; // of an SVG
const MOST_EDGES = 20000;

/** Offers a file to save. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** The scene with what is drawn over it. @param {HTMLCanvasElement[]} layers @returns {Promise<Blob>} */
export function png(layers, /** @type {() => void} */ draw) {
  const canvas = document.createElement("canvas");
  canvas.width = layers[0].width;
  canvas.height = layers[0].height;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  draw(); // WebGL keeps its picture until the end of this task only
  for (const layer of layers) context.drawImage(layer, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no picture")))));
}

/**
 * What is visible, as shapes and text.
 * @param {any} scene @param {import("./labels.js").Overlay} overlay @param {number} selected
 * @param {{width: number, height: number, background: string, disc: string, rim: string, edge: string, ink: string, halo: string,
 *   accent: string, family: string, edges: boolean, colour: (row: number) => string | null, title: string}} look
 */
export function vector(scene, overlay, selected, look) {
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: look.width, height: look.height,
    viewBox: `0 0 ${look.width} ${look.height}` }, svg("title", {}, look.title));
  picture.append(svg("rect", { width: "100%", height: "100%", fill: look.background }));
  const disc = scene.disc();
  if (disc) picture.append(svg("circle", { cx: disc.x, cy: disc.y, r: disc.r, fill: look.disc, stroke: look.rim }));
  const rows = [...scene.rows.subarray(0, Math.min(scene.some, MOST_NODES))].filter((row) => look.colour(row));
  if (look.edges) picture.append(svg("path", { d: rows.slice(0, MOST_EDGES).map((row) => path(scene.edgePath(row))).join(""),
    fill: "none", stroke: look.edge, "stroke-width": 0.7 }));
  const dots = svg("g", {});
  for (const row of rows.sort((a, b) => scene.weight(a) - scene.weight(b))) {
    const at = scene.project(row);
    dots.append(svg("circle", { cx: round(at.x), cy: round(at.y), r: round(at.size / 2), fill: look.colour(row) }));
  }
  picture.append(dots);
  for (const { points } of selected >= 0 ? scene.contours(selected) ?? [] : [])
    picture.append(svg("path", { d: `${path(points)}Z`, fill: look.accent, "fill-opacity": 0.09, stroke: look.accent, "stroke-width": 1.3 }));
  for (const { text, x, y, font, alpha, row } of overlay.labels) {
    const [weight, size] = font.split(" ");
    picture.append(svg("text", { x: round(x), y: round(y), "font-family": look.family, "font-size": size, "font-weight": weight,
      "dominant-baseline": "middle", fill: row === selected ? look.accent : look.ink, opacity: round(alpha), stroke: look.halo,
      "stroke-width": 3, "paint-order": "stroke", "stroke-linejoin": "round" }, text));
  }
  return new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" });
}

const round = (/** @type {number} */ x) => Math.round(100 * x) / 100;

function path(/** @type {ArrayLike<number> | null} */ points) {
  let text = "";
  for (let i = 0; points && i < points.length; i += 2) text += `${i ? "L" : "M"}${round(points[i])} ${round(points[i + 1])}`;
  return text;
}

/** A table of these nodes. @param {any} data @param {number[]} rows */
export function table(data, rows) {
  const { tree, scale, scaleColumns: wide } = data;
  /** @type {[string, (row: number) => string | number][]} */
  const columns = [["name", (r) => data.name(r)]];
  if (tree) columns.push(["parent", (r) => (data.parent[r] < 0 ? "" : data.name(data.parent[r]))], ["level", (r) => data.level[r]],
    ["subtree", (r) => data.size[r]]);
  columns.push(["radius", (r) => data.radius(r)]);
  if (data.entropy) columns.push(["entropy", (r) => data.entropy[r]]);
  for (let i = 0; scale && i < wide; i++) columns.push([`scale_${i + 1}`, (r) => scale[wide * r + i]]);
  for (const { name, kind, values, categories } of data.columns)
    columns.push([name, (r) => (kind === "category" ? categories[values[r]] ?? "" : Number.isNaN(values[r]) ? "" : values[r])]);
  const lines = [columns.map(([name]) => quoted(name)), ...rows.map((row) => columns.map(([, of]) => quoted(of(row))))];
  return new Blob([lines.map((line) => `${line.join(",")}\n`).join("")], { type: "text/csv" });
}

/** A cell of CSV; a text that a spreadsheet would take for a formula begins with an apostrophe. */
function quoted(/** @type {string | number} */ value) {
  if (typeof value === "number") return `${value}`;
  const safe = /^[=+@\t\r-]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
