// Mouse, touch, wheel and keys.

const SLOP = 5; // pixels that a click may move
const PACE = 70; // pixels per arrow key

/**
 * Drag, pinch, wheel, click and double click on the canvas.
 * @param {HTMLElement} canvas
 * @param {any} scene
 * @param {{moved: () => void, click: (x: number, y: number) => void, double: (x: number, y: number) => void,
 *   hover: (x: number, y: number) => void, leave: () => void}} events
 */
export function listen(canvas, scene, events) {
  /** @type {Map<number, {x: number, y: number}>} */
  const down = new Map();
  let travelled = 0, lastClick = { at: -1e9, x: 0, y: 0 };
  const place = (/** @type {MouseEvent} */ e) => {
    const box = canvas.getBoundingClientRect();
    return { x: e.clientX - box.left, y: e.clientY - box.top };
  };
  const pinch = () => {
    const [a, b] = [...down.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, span: Math.hypot(a.x - b.x, a.y - b.y) };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    if (!down.size) travelled = 0;
    down.set(event.pointerId, place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const to = place(event), from = down.get(event.pointerId);
    if (!from) return event.pointerType === "mouse" ? events.hover(to.x, to.y) : undefined;
    const before = down.size === 2 ? pinch() : null;
    travelled += Math.hypot(to.x - from.x, to.y - from.y);
    down.set(event.pointerId, to);
    if (travelled < SLOP) return;
    if (before) {
      const after = pinch();
      scene.drag(before.x, before.y, after.x, after.y);
      if (before.span > 0) scene.magnify(after.span / before.span, after.x, after.y);
    } else if (down.size === 1) scene.drag(from.x, from.y, to.x, to.y);
    events.moved();
  });
  const up = (/** @type {PointerEvent} */ event) => {
    const at = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (!at || event.type !== "pointerup" || down.size || travelled >= SLOP) return;
    const again = event.timeStamp - lastClick.at < 350 && Math.hypot(at.x - lastClick.x, at.y - lastClick.y) < 20;
    lastClick = again ? { at: -1e9, x: 0, y: 0 } : { at: event.timeStamp, ...at };
    if (again) events.double(at.x, at.y);
    else events.click(at.x, at.y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", events.leave);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = place(event), unit = event.deltaMode === 1 ? 16 : 1;
    const factor = Math.exp(-Math.max(-120, Math.min(120, event.deltaY * unit)) / 400);
    if (event.ctrlKey) scene.magnify(factor, x, y); // so browsers report a pinch
    else scene.zoom(factor, x, y);
    events.moved();
  }, { passive: false });
}

/** What the keys do, as the help shows it; each calls a method of the explorer. */
export const KEYS = [
  { keys: ["/"], shown: "/", text: "search", run: (/** @type {any} */ e) => e.search.focus() },
  { keys: ["ArrowLeft"], shown: "← ↑ ↓ →", text: "move", run: (/** @type {any} */ e) => e.pan(PACE, 0) },
  { keys: ["ArrowRight"], run: (/** @type {any} */ e) => e.pan(-PACE, 0) },
  { keys: ["ArrowUp"], run: (/** @type {any} */ e) => e.pan(0, PACE) },
  { keys: ["ArrowDown"], run: (/** @type {any} */ e) => e.pan(0, -PACE) },
  { keys: ["+", "="], shown: "+  −", text: "deeper, back", run: (/** @type {any} */ e) => e.zoom(1.25) },
  { keys: ["-", "_"], run: (/** @type {any} */ e) => e.zoom(0.8) },
  { keys: ["Enter"], shown: "Enter", text: "centre the selected node", run: (/** @type {any} */ e) => e.centre(e.selected) },
  { keys: ["Shift+ArrowUp"], shown: "Shift + ↑ ↓", text: "parent, first child", run: (/** @type {any} */ e) => e.walk("parent") },
  { keys: ["Shift+ArrowDown"], run: (/** @type {any} */ e) => e.walk("child") },
  { keys: ["Shift+ArrowLeft"], shown: "Shift + ← →", text: "siblings", run: (/** @type {any} */ e) => e.walk("before") },
  { keys: ["Shift+ArrowRight"], run: (/** @type {any} */ e) => e.walk("after") },
  { keys: ["Home", "0"], shown: "Home", text: "back to the start", run: (/** @type {any} */ e) => e.home() },
  { keys: ["m"], shown: "m", text: "Poincaré, Klein, band, wide", run: (/** @type {any} */ e) => e.nextModel() },
  { keys: ["c"], shown: "c", text: "next colours", run: (/** @type {any} */ e) => e.nextColouring() },
  { keys: ["e"], shown: "e", text: "edges", run: (/** @type {any} */ e) => e.toggleEdges() },
  { keys: ["t"], shown: "t", text: "light, dark", run: (/** @type {any} */ e) => e.toggleTheme() },
  { keys: ["?"], shown: "?", text: "this help", run: (/** @type {any} */ e) => e.toggleHelp() },
  { keys: ["Escape"], shown: "Esc", text: "close", run: (/** @type {any} */ e) => e.escape() },
];

/** Keys, while nothing that takes text has the focus. @param {HTMLElement} root @param {any} explorer */
export function listenToKeys(root, explorer) {
  root.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.composedPath()[0]);
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && event.key !== "Escape") return;
    if (/^(BUTTON|SUMMARY|A)$/.test(target.tagName) && /^(Enter| )$/.test(event.key)) return;
    const arrow = event.shiftKey && event.key.startsWith("Arrow");
    const pressed = arrow ? `Shift+${event.key}` : event.key;
    const found = KEYS.find(({ keys }) => keys.includes(pressed));
    if (!found) return;
    event.preventDefault();
    found.run(explorer);
  });
}
