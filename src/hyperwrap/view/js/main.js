// The explorer: a scene, and around it search, panel, legend, tools and the way back.

import { openPack } from "./pack.js";
import { Scene } from "./scene.js";
import { colourings, meaning, paint, rgb } from "./colours.js";
import { count, el, icon, iconButton, number, short } from "./dom.js";
import { png, save, table, vector } from "./export.js";
import { Overlay } from "./labels.js";
import { Legend } from "./legend.js";
import { MODELS } from "./models.js";
import { KEYS, listen, listenToKeys } from "./moves.js";
import { Panel } from "./panel.js";
import { SearchBox } from "./search.js";
import { Tiles } from "./tiles.js";

const FLIGHT = 700; // milliseconds
const CROWD = 400; // points without a tree of which none is named
const NARROW = 760; // pixels, as in the style
const DEEP = 5; // radius from which a hierarchy is shown wide at first: in the Poincaré disc, all would be at the rim
const LOOKS = {
  light: { background: "#f2f3f7", disc: "#ffffff", rim: "#c3c8d6", edge: "#8d96ad", ink: "#1b2133", halo: "#ffffff", accent: "#3346c8" },
  dark: { background: "#0c0f16", disc: "#141926", rim: "#343c52", edge: "#56607c", ink: "#e8ebf5", halo: "#11151f", accent: "#9db0ff" },
};
let instances = 0;

/** @typedef {{theme?: string, hash?: boolean}} Options */

export class Explorer {
  /** @type {HTMLCanvasElement} */ canvas;
  /** @type {HTMLCanvasElement} */ overCanvas;
  /** @type {Scene} */ scene;
  /** @type {Overlay} */ overlay;
  /** @type {SearchBox} */ search;
  /** @type {Panel} */ panel;
  /** @type {Legend} */ legend;
  /** @type {Map<string, () => import("./colours.js").Colouring>} */ all;
  /** @type {import("./colours.js").Colouring} */ colouring;
  /** @type {Uint8Array} four bytes per row */ colours;
  /** @type {Uint8Array | null} the rows that stay, if only some do */ kept = null;
  /** @type {number[]} the ancestors of the selected node */ path = [];
  /** @type {HTMLElement} */ view;
  /** @type {HTMLElement} */ stage;
  /** @type {HTMLElement} */ crumbs;
  /** @type {HTMLElement} */ status;
  /** @type {HTMLElement} */ models;
  /** @type {HTMLElement} */ edgesButton;
  /** @type {HTMLDialogElement} */ help;
  /** @type {Tiles | null} */ tiles = null;
  /** @type {string} the address that was written last */ hash = "";
  drawn = false;
  linking = 0;
  saying = 0;

  /** @param {HTMLElement} root @param {any} data a pack that was opened @param {Options} options */
  constructor(root, data, options) {
    this.root = root;
    this.options = options;
    this.data = data;
    this.id = `hw${++instances}`;
    this.selected = this.hovered = -1;
    /** @type {number | null} levels shown below the selected node */
    this.depth = null;
    this.first = data.tree && isDeep(data) ? "wide" : "poincare";
    this.model = this.first;
    this.edges = true;
    /** @type {Set<number>} */
    this.hidden = new Set();
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.darkness = matchMedia("(prefers-color-scheme: dark)");
    this.theme = options.theme ?? "auto";
    this.stop = new AbortController();
    this.frame = 0;
    this.#build();
    this.tiles = Tiles.of(this.data);
    this.#listen();
    this.setModel(this.first);
    this.#applyTheme();
    this.choose(this.data.about.colour && this.all.has(this.data.about.colour) ? this.data.about.colour : this.all.keys().next().value);
    if (options.hash) this.openLink();
    this.request();
  }

  // --- the page ---------------------------------------------------------------------------------------

  #build() {
    const { data } = this, { about } = data;
    this.canvas = el("canvas", { class: "hw-scene", tabIndex: 0, role: "img", "aria-label": this.#description(),
      "aria-describedby": `${this.id}-keys` });
    this.overCanvas = el("canvas", { class: "hw-over", "aria-hidden": "true" });
    this.scene = new Scene(this.canvas, data);
    this.overlay = new Overlay(this.overCanvas, data, this.scene);
    this.search = new SearchBox(data, (row) => this.go(row), this.id);
    this.panel = new Panel(data, {
      go: (row) => this.go(row), centre: (row) => this.centre(row), close: () => this.select(-1),
      link: () => this.copyLink(), depth: (levels) => this.setDepth(levels), hover: (row) => this.#hover(row),
    });
    this.all = colourings(data);
    this.legend = new Legend([...this.all.keys()], { choose: (id) => this.choose(id), toggle: (kind) => this.toggle(kind) });
    this.crumbs = el("nav", { class: "hw-crumbs", "aria-label": "Ancestors" });
    this.status = el("p", { class: "hw-status", role: "status" });
    this.help = this.#help();
    this.view = el("div", { class: "hw-view" }, this.canvas, this.overCanvas);
    this.stage = el(this.options.hash ? "main" : "section", { class: "hw-stage", "aria-label": "Picture" }, this.view, this.crumbs, this.#tools(), this.status, this.help);
    const note = about.note ? [el("p", { class: "hw-note" }, about.note)] : [];
    const side = el("aside", { class: "hw-side", "aria-label": "Search and details" },
      el("header", { class: "hw-title" }, el("h1", { dir: "auto" }, about.title ?? "hyperwrap"), el("p", {}, about.subtitle ?? `${count(data.count)} nodes`), ...note),
      this.search.element, this.panel.element, this.legend.element);
    this.root.classList.add("hw-explorer");
    this.root.replaceChildren(side, this.stage);
  }

  #description() {
    return `${this.data.about.title ?? "An embedding"}: ${count(this.data.count)} nodes in the hyperbolic plane`;
  }

  #tools() {
    this.models = el("div", { class: "hw-models", role: "group", "aria-label": "Model of the plane" }, ...Object.entries(MODELS).map(([model, { title }]) =>
      el("button", { type: "button", "data-model": model, "aria-pressed": `${model === this.model}`, onclick: () => this.setModel(model) }, title)));
    this.edgesButton = iconButton("edges", "Edges (e)", () => this.toggleEdges(), { "aria-pressed": `${this.edges}`, hidden: !this.data.tree });
    const item = (/** @type {string} */ text, /** @type {() => void} */ run) =>
      el("button", { type: "button", onclick: () => { menu.open = false; run(); } }, text);
    const menu = el("details", { class: "hw-menu" }, el("summary", { class: "hw-tool", title: "Save", "aria-label": "Save" }, icon("save")),
      el("div", { class: "hw-card" }, item("Picture, PNG", () => this.savePng()), item("Drawing, SVG", () => this.saveSvg()),
        item("Selection, CSV", () => this.saveCsv()), item("Copy a link", () => this.copyLink())));
    return el("div", { class: "hw-tools", role: "toolbar", "aria-label": "View" }, this.models,
      el("div", { class: "hw-buttons" }, iconButton("home", "Back to the start (Home)", () => this.home()), this.edgesButton,
        iconButton("contrast", "Light or dark (t)", () => this.toggleTheme()), menu, iconButton("help", "Keys (?)", () => this.toggleHelp())));
  }

  #help() {
    const shown = KEYS.filter((key) => key.shown);
    return el("dialog", { class: "hw-help hw-card", "aria-labelledby": `${this.id}-help` },
      el("header", { class: "hw-head" }, el("h2", { id: `${this.id}-help` }, "Moving about"), iconButton("close", "Close (Esc)", () => this.help.close())),
      el("p", {}, "Drag to move, turn the wheel or pinch to go deeper. A click selects a node, a double click centres it."),
      el("dl", { id: `${this.id}-keys` }, ...shown.map(({ shown, text }) => el("div", {}, el("dt", {}, el("kbd", {}, shown ?? "")), el("dd", {}, text ?? "")))));
  }

  #listen() {
    const { signal } = this.stop, redraw = () => this.request();
    listen(this.canvas, this.scene, {
      moved: () => { this.hovered = -1; this.request(); },
      click: (x, y) => this.#click(x, y),
      double: (x, y) => this.centre(this.scene.pick(x, y)),
      hover: (x, y) => this.#hover(this.scene.pick(x, y)),
      leave: () => this.#hover(-1),
    });
    listenToKeys(this.root, this);
    this.darkness.addEventListener("change", () => this.#applyTheme(), { signal });
    if (this.options.hash) addEventListener("hashchange", () => location.hash === this.hash || this.openLink(), { signal });
    this.legend.element.open = this.root.clientWidth > NARROW;
    const resized = new ResizeObserver(() => this.#resize());
    resized.observe(this.view);
    signal.addEventListener("abort", () => { resized.disconnect(); cancelAnimationFrame(this.frame); });
    this.canvas.addEventListener("focus", redraw);
    this.#resize();
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.view, ratio = Math.min(devicePixelRatio || 1, 2);
    if (!width || !height) return;
    this.scene.setSize(width, height, ratio);
    this.overlay.setSize(width, height, ratio);
    this.request();
  }

  /** Draws at the next chance. */
  request() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    this.scene.step(performance.now());
    this.scene.draw();
    const narrow = this.stage.clientWidth < NARROW;
    this.overlay.draw({ selected: this.selected, hovered: this.hovered, path: this.path, isHidden: (row) => this.colours[4 * row + 3] === 0,
      limit: !this.data.tree && this.scene.some > CROWD ? 0 : narrow ? 26 : 60 });
    if (!this.drawn) performance.mark("first picture");
    this.drawn = true;
    if (this.scene.dirty) this.request();
    clearTimeout(this.linking);
    if (this.options.hash) this.linking = setTimeout(() => this.#writeLink(), 400);
  }

  // --- a node -------------------------------------------------------------------------------------------

  #click(/** @type {number} */ x, /** @type {number} */ y) {
    const row = this.scene.pick(x, y);
    if (row >= 0 || !this.tiles) return this.select(row);
    const place = this.scene.unproject(x, y), found = place && this.tiles.nearest(place);
    this.select(-1);
    if (found) this.panel.showPlace(found.picture, found.text);
  }

  #hover(/** @type {number} */ row) {
    if (row === this.hovered) return;
    this.hovered = row;
    this.canvas.style.cursor = row >= 0 ? "pointer" : "";
    this.request();
  }

  /** @param {number} row −1 for none */
  select(row) {
    this.selected = row;
    this.path = row >= 0 && this.data.tree ? this.data.ancestors(row) : [];
    if (row < 0) this.depth = null;
    this.panel.show(row, this.depth);
    const tile = row >= 0 && this.tiles?.nearest(this.data.tangent(row));
    if (tile) this.panel.element.append(tile.picture, el("p", { class: "hw-note" }, tile.text));
    this.#crumbs();
    if (row >= 0) this.status.textContent = this.#said(row);
    if (this.depth !== null || this.kept) this.#paint();
    this.root.classList.toggle("hw-selected", row >= 0);
    this.request();
  }

  #said(/** @type {number} */ row) {
    const { data, colouring } = this, above = this.path.length ? `, below ${short(data.name(this.path[0]))}` : "";
    return `${short(data.name(row))}${above}; ${colouring.label}: ${meaning(colouring, row)}`;
  }

  #crumbs() {
    const { data } = this, rows = this.selected >= 0 ? [...(this.path)].reverse().concat(this.selected) : [];
    if (!rows.length) {
      this.crumbs.replaceChildren(el("p", {}, `Drag to move, scroll to ${this.data.tree ? "go deeper" : "enlarge"}. Click on a ${this.data.tree ? "node" : "point"}, or search.`));
      return;
    }
    this.crumbs.replaceChildren(el("ol", {}, ...rows.map((row, i) => el("li", {},
      el("button", { type: "button", dir: "auto", ...(i === rows.length - 1 ? { "aria-current": "true" } : {}), onclick: () => this.go(row) }, short(data.name(row)))))));
    this.crumbs.scrollLeft = this.crumbs.scrollWidth;
  }

  /** Selects a node and flies to it. @param {number} row */
  go(row) {
    this.select(row);
    this.centre(row);
  }

  /** @param {number} row */
  async centre(row) {
    if (row < 0) return;
    if (row !== this.selected) this.select(row);
    const flight = this.scene.fly(row, this.still.matches ? 0 : FLIGHT);
    this.request();
    await flight;
    this.request();
  }

  /** @param {number | null} levels */
  setDepth(levels) {
    this.depth = levels;
    this.#paint();
  }

  /** To the parent, the first child or a sibling. @param {"parent" | "child" | "before" | "after"} where */
  walk(where) {
    const { data } = this;
    if (!data.tree) return;
    if (this.selected < 0) return this.go(this.scene.centre());
    const up = data.parent[this.selected];
    if (where === "parent") return up >= 0 && this.go(up);
    if (where === "child") return data.size[this.selected] > 1 && this.go([...data.children(this.selected)][0]);
    const siblings = up >= 0 ? [...data.children(up)] : [this.selected], at = siblings.indexOf(this.selected);
    return this.go(siblings[(at + (where === "after" ? 1 : -1) + siblings.length) % siblings.length]);
  }

  // --- the view -----------------------------------------------------------------------------------------

  pan(/** @type {number} */ dx, /** @type {number} */ dy) {
    const [x, y] = this.#middle();
    this.scene.drag(x, y, x + dx, y + dy);
    this.request();
  }

  zoom(/** @type {number} */ factor) {
    const at = this.selected >= 0 ? this.scene.project(this.selected) : null, [x, y] = this.#middle();
    if (at?.visible) this.scene.zoom(factor, at.x, at.y);
    else this.scene.zoom(factor, x, y);
    this.request();
  }

  #middle() {
    return [this.view.clientWidth / 2, this.view.clientHeight / 2];
  }

  async home() {
    const flight = this.scene.home(this.still.matches ? 0 : FLIGHT);
    this.request();
    await flight;
    this.request();
  }

  /** @param {string} model */
  setModel(model) {
    if (!Object.hasOwn(MODELS, model)) return;
    this.model = model;
    this.scene.setModel(model);
    for (const button of /** @type {Iterable<HTMLElement>} */ (/** @type {unknown} */ (this.models.children))) button.setAttribute("aria-pressed", `${button.dataset.model === model}`);
    this.request();
  }

  nextModel() {
    const all = Object.keys(MODELS);
    this.setModel(all[(all.indexOf(this.model) + 1) % all.length]);
  }

  toggleEdges() {
    this.edges = !this.edges;
    this.scene.showEdges(this.edges);
    this.edgesButton.setAttribute("aria-pressed", `${this.edges}`);
    this.request();
  }

  get dark() {
    const lab = document.body.dataset.jpThemeLight;
    return this.theme === "auto" ? (lab ? lab === "false" : this.darkness.matches) : this.theme === "dark";
  }

  toggleTheme() {
    this.theme = this.dark ? "light" : "dark";
    this.#applyTheme();
  }

  #applyTheme() {
    const look = LOOKS[this.dark ? "dark" : "light"], unit = (/** @type {string} */ hex) => rgb(hex).map((x) => x / 255);
    this.root.dataset.theme = this.dark ? "dark" : "light";
    this.overlay.look = { ...look, family: getComputedStyle(this.root).fontFamily };
    this.scene.showEdges(this.edges);
    this.scene.setTheme({ background: unit(look.background), disc: unit(look.disc), edge: [...unit(look.edge), this.#edgeStrength()], rim: unit(look.rim), tint: this.dark ? 0.75 : 0.6 });
    if (this.colouring) this.#paint();
    this.request();
  }

  #edgeStrength() {
    return this.data.count < 2000 ? 0.8 : 0.55;
  }

  // --- colours ------------------------------------------------------------------------------------------

  /** @param {string} id */
  choose(id) {
    const make = this.all.get(id);
    if (!make) return;
    this.colouring = make();
    this.hidden.clear();
    this.#paint();
  }

  nextColouring() {
    const ids = [...this.all.keys()];
    this.choose(ids[(ids.indexOf(this.colouring.id) + 1) % ids.length]);
  }

  /** @param {number} kind */
  toggle(kind) {
    if (!this.hidden.delete(kind)) this.hidden.add(kind);
    this.#paint();
    this.legend.body.children[kind]?.focus();
  }

  #paint() {
    this.kept = this.depth === null || this.selected < 0 ? null : this.#within(this.selected, this.depth);
    this.colours = paint(this.colouring, this.dark, this.hidden, this.kept);
    this.scene.setColours(this.colours);
    this.legend.show(this.colouring, this.dark, this.hidden);
    this.request();
  }

  /** The node, its ancestors, and so many levels below it. */
  #within(/** @type {number} */ row, /** @type {number} */ depth) {
    const kept = new Uint8Array(this.data.count);
    for (const each of [row, ...(this.path)]) kept[each] = 1;
    let level = [row];
    for (let i = 0; i < depth; i++) {
      level = level.flatMap((each) => [...this.data.children(each)]);
      for (const each of level) kept[each] = 1;
    }
    return kept;
  }

  // --- links --------------------------------------------------------------------------------------------

  /** The view as a fragment, `#node=dog.n.01&depth=3`. */
  link() {
    const parts = new URLSearchParams();
    if (this.selected >= 0) parts.set("node", this.data.name(this.selected));
    if (this.depth !== null) parts.set("depth", `${this.depth}`);
    if (this.model !== this.first) parts.set("model", this.model);
    if (this.colouring.id !== this.all.keys().next().value) parts.set("colour", this.colouring.id);
    const view = this.scene.state(this.selected);
    if (view) parts.set("view", view);
    return `#${parts}`;
  }

  #writeLink() {
    this.hash = this.link();
    try {
      history.replaceState(null, "", this.hash);
    } catch { /* too often, or in a frame that must not: the link can still be copied */ }
  }

  /** Shows what the address says. */
  openLink() {
    const parts = new URLSearchParams(location.hash.slice(1)), name = parts.get("node");
    const row = name === null ? -1 : this.data.row(name), depth = Number(parts.get("depth"));
    this.setModel(parts.get("model") ?? this.first);
    if (parts.has("colour")) this.choose(/** @type {string} */ (parts.get("colour")));
    this.depth = row >= 0 && Number.isInteger(depth) && depth > 0 ? Math.min(depth, 20) : null;
    this.select(row);
    if (name !== null && row < 0) this.say(`There is no node ${name}.`);
    const view = parts.get("view");
    if (!(view && this.scene.restore(view)) && row >= 0) this.scene.fly(row, 0);
    this.request();
  }

  async copyLink() {
    const text = new URL(this.link(), location.href).href;
    try {
      await navigator.clipboard.writeText(text);
      this.say("The link is in the clipboard.");
    } catch {
      location.hash = this.link();
      this.say("The link is in the address bar.");
    }
  }

  // --- out ----------------------------------------------------------------------------------------------

  async savePng() {
    save(await this.png(), "explorer.png");
  }

  /** The picture. @returns {Promise<Blob>} */
  png() {
    return png([this.canvas, this.overCanvas], () => this.draw());
  }

  saveSvg() {
    save(this.svg(), "explorer.svg");
  }

  svg() {
    const look = { ...LOOKS[this.dark ? "dark" : "light"], family: this.overlay.look.family };
    return vector(this.scene, this.overlay, this.selected, { ...look, width: this.view.clientWidth, height: this.view.clientHeight,
      edges: this.edges && this.data.tree, title: this.#description(), colour: (row) => this.#colourOf(row) });
  }

  #colourOf(/** @type {number} */ row) {
    const [r, g, b, a] = this.colours.subarray(4 * row, 4 * row + 4);
    return a ? `#${((r << 16) | (g << 8) | b).toString(16).padStart(6, "0")}` : null;
  }

  saveCsv() {
    save(this.csv(), "selection.csv");
  }

  /** The selected node and all below it; without one, all nodes. */
  csv() {
    const rows = this.selected < 0 ? Array.from({ length: this.data.count }, (_, i) => i) : this.#subtree(this.selected);
    return table(this.data, rows);
  }

  #subtree(/** @type {number} */ row) {
    const rows = [row];
    if (this.data.tree) for (let i = 0; i < rows.length; i++) rows.push(...this.data.children(rows[i]));
    return rows;
  }

  /** @param {string} text */
  say(text) {
    this.status.textContent = text;
    this.status.classList.add("hw-said");
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.status.classList.remove("hw-said"), 2500);
  }

  toggleHelp() {
    if (this.help.open) this.help.close();
    else this.help.showModal();
  }

  escape() {
    if (this.help.open) this.help.close();
    else this.select(-1);
  }

  destroy() {
    this.stop.abort();
    this.root.replaceChildren();
  }
}

/** Whether some of the nodes, of which a few thousand are looked at, are far out. */
function isDeep(/** @type {import("./pack.js").Pack} */ data) {
  for (let row = 0; row < data.count; row += Math.ceil(data.count / 4000)) if (data.radius(row) > DEEP) return true;
  return false;
}

// --- where it stands ----------------------------------------------------------------------------------------

/** Shows a pack, gzipped or not, in an element. @param {HTMLElement} root @param {ArrayBuffer} buffer @param {Options} [options] */
export const mount = async (root, buffer, options = {}) => new Explorer(root, await openPack(buffer), options);

/** The page: its data are in it, or beside it. */
export async function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById("explorer"));
  const holders = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("script.data"));
  const source = holders[0].dataset.src;
  root.classList.add("hw-explorer");
  root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.replaceChildren(el("p", { class: "hw-wait" }, "Reading …"));
  try {
    const buffer = source ? await fetched(source) : decoded(holders);
    Object.assign(window, { explorer: await mount(root, buffer, { hash: true }) });
  } catch (error) {
    root.replaceChildren(el("p", { class: "hw-wait", role: "alert" }, trouble(error, source)));
    throw error;
  }
}

/** The data beside the page. @param {string} source */
async function fetched(source) {
  const answer = await fetch(source);
  if (!answer.ok) throw new Error(`${source}: ${answer.status}`);
  return answer.arrayBuffer();
}

/** The data in the page, base64 in slices. @param {NodeListOf<HTMLElement>} holders @returns {ArrayBuffer} */
function decoded(holders) {
  const parts = Array.from(holders, (holder) => {
    const text = atob(holder.textContent ?? ""), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    holder.remove();
    return bytes;
  });
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole.buffer;
}

function trouble(/** @type {unknown} */ error, /** @type {string | undefined} */ source) {
  if (source && location.protocol === "file:")
    return `A browser does not let a page read a file beside it. Open it with: hyperwrap view --serve, or put the page and ${source} on any web server.`;
  if (!document.createElement("canvas").getContext("webgl2")) return "This browser has no WebGL2, which the explorer draws with. Please use another one.";
  return `The explorer could not be opened (${error instanceof Error ? error.message : error}).`;
}

/** A notebook's cell, by anywidget. */
async function render(/** @type {{model: any, el: HTMLElement}} */ { model, el: cell }) {
  const bytes = model.get("data"), root = el("div", {});
  root.style.height = `${model.get("height")}px`;
  cell.append(root);
  const explorer = await mount(root, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  return () => explorer.destroy();
}

export default { render };
