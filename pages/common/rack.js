// The rack, drawn on a 2D canvas: shelves are layers, positions run along, keys stand in front of
// values. Drawn only when something changes; no WebGL, so it works wherever a canvas does.

const FIRST_VIEW = { yaw: -0.5, pitch: 0.42 };
const WIDTH = 2.6, HEIGHT = 1.25, DEPTH = 0.62, CAMERA = 5.2;
const ENTER_MS = 320, FADE_MS = 700;
const instances = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  let rack = instances.get(parentElement);
  if (!rack) {
    rack = mount(parentElement);
    instances.set(parentElement, rack);
  }
  rack.update(data);
  return () => {
    rack.unmount();
    instances.delete(parentElement);
  };
}

function mount(root) {
  const canvas = root.querySelector("canvas");
  const tip = root.querySelector(".tip");
  const legend = root.querySelector(".legend");
  const context = canvas.getContext("2d");
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const view = { ...FIRST_VIEW };
  let scene = null, before = null, changedAt = null, pending = 0, dragged = null, drawn = [];

  const redraw = () => {
    if (!pending) pending = requestAnimationFrame(draw);
  };

  function draw(now) {
    pending = 0;
    if (!scene) return;
    const began = performance.now();
    fitHeight(canvas, scene.height);
    changedAt ??= now; // the first picture of a change starts its movement, however late it comes
    const age = calm.matches ? Infinity : now - changedAt;
    drawn = drawScene(canvas, context, scene, before, view, age);
    canvas.dataset.drawMs = (performance.now() - began).toFixed(2);
    canvas.dataset.boxes = drawn.length;
    canvas.dataset.frames = Number(canvas.dataset.frames || 0) + 1;
    canvas.dataset.yaw = view.yaw.toFixed(3);
    if (age < Math.max(ENTER_MS, FADE_MS)) redraw();
    else before = null;
  }

  function turn(yaw, pitch) {
    view.yaw = Math.max(-1.45, Math.min(1.45, view.yaw + yaw));
    view.pitch = Math.max(-0.15, Math.min(1.35, view.pitch + pitch));
    tip.hidden = true;
    redraw();
  }

  canvas.onpointerdown = (event) => {
    dragged = { x: event.clientX, y: event.clientY };
    canvas.setPointerCapture(event.pointerId);
    if (event.pointerType !== "mouse") point(event);
  };
  canvas.onpointermove = (event) => {
    if (!dragged) return point(event);
    const dx = event.clientX - dragged.x, dy = event.clientY - dragged.y;
    if (!dx && !dy) return;
    dragged = { x: event.clientX, y: event.clientY };
    turn(dx * 0.008, dy * 0.006);
  };
  canvas.onpointerup = canvas.onpointercancel = () => { dragged = null; };
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    if (event.key === "Home") Object.assign(view, FIRST_VIEW);
    else if (!step[event.key]) return;
    event.preventDefault();
    turn(...(step[event.key] || [0, 0]));
  };

  function point(event) {
    const frame = canvas.getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    const box = boxAt(drawn, x, y);
    tip.hidden = !box;
    if (!box) return;
    tip.textContent = describe(scene, box);
    const left = Math.min(x + 14, frame.width - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${y + tip.offsetHeight + 24 > frame.height ? y - tip.offsetHeight - 10 : y + 16}px`;
  }

  const observer = new ResizeObserver(redraw);
  observer.observe(canvas);

  return {
    update(data) {
      const next = readScene(data, root.host || root);
      before = scene;
      scene = next;
      changedAt = null;
      canvas.setAttribute("aria-label", data.label);
      drawLegend(legend, scene);
      redraw();
    },
    unmount() {
      observer.disconnect();
      cancelAnimationFrame(pending);
    },
  };
}

// On a narrow screen the rack is limited by its width, so a lower canvas shows it just as large.
function fitHeight(canvas, height) {
  const fitting = `${Math.round(Math.min(height, Math.max(220, canvas.clientWidth * 0.7)))}px`;
  if (canvas.style.height !== fitting) canvas.style.height = fitting;
}

function readScene(data, host) {
  const style = getComputedStyle(host);
  const read = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  const roles = read("--st-chart-categorical-colors", "#000").split(",").map((c) => rgb(c.trim()));
  return {
    ...data,
    keys: norms(data.keys),
    values: norms(data.values),
    font: read("--st-font", "sans-serif"),
    text: rgb(read("--st-text-color", "#222")),
    ground: rgb(read("--st-background-color", "#fff")),
    key: roles[0], value: roles[1], saved: roles[2], gone: roles[6],
  };
}

// Norms, and the one that is drawn at full height: a few positions, above all the first, tower over
// the rest, so the top is taken at 98 % and what is higher is cut there.
function norms(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const all = new Float32Array(bytes.buffer);
  const sorted = [...all].sort((a, b) => a - b);
  return { all, tall: sorted[Math.floor(0.98 * (sorted.length - 1))] || 1 };
}

function rgb(colour) {
  if (colour.startsWith("#")) {
    const hex = colour.length === 4 ? colour.replace(/[^#]/g, "$&$&") : colour;
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  }
  return (colour.match(/[\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
}

const mix = (a, b, share) => a.map((part, i) => part + (b[i] - part) * share);
const css = (colour, alpha = 1) =>
  `rgba(${colour.map(Math.round).join(",")},${alpha.toFixed(2)})`;

// Geometry

function camera(view, width, height) {
  const [sy, cy, sp, cp] = [Math.sin(view.yaw), Math.cos(view.yaw), Math.sin(view.pitch), Math.cos(view.pitch)];
  const raw = (x, y, z) => {
    const across = x * cy + z * sy, away = z * cy - x * sy;
    const up = y * cp - away * sp, near = y * sp + away * cp;
    const scale = CAMERA / (CAMERA - near);
    return [across * scale, -up * scale];
  };
  const corners = [];
  for (const x of [-WIDTH / 2, WIDTH / 2])
    for (const y of [-HEIGHT / 2, HEIGHT / 2])
      for (const z of [-DEPTH / 2, DEPTH / 2]) corners.push(raw(x, y, z));
  const xs = corners.map((c) => c[0]), ys = corners.map((c) => c[1]);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const margin = { x: Math.min(62, width * 0.14), top: 10, bottom: 26 };
  const zoom = Math.min((width - 2 * margin.x) / (right - left), (height - margin.top - margin.bottom) / (bottom - top));
  const midX = width / 2 - zoom * (left + right) / 2;
  const midY = margin.top + (height - margin.top - margin.bottom) / 2 - zoom * (top + bottom) / 2;
  return {
    project: (x, y, z) => {
      const [px, py] = raw(x, y, z);
      return [midX + zoom * px, midY + zoom * py];
    },
    eye: [-CAMERA * cp * sy, CAMERA * sp, CAMERA * cp * cy],
  };
}

const farthestFirst = (centres, eye) =>
  centres.map((_, i) => i).sort((a, b) => Math.abs(centres[b] - eye) - Math.abs(centres[a] - eye));

function drawScene(canvas, context, scene, before, view, age) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);

  const { project, eye } = camera(view, width, height);
  const columns = scene.columns, shelves = scene.shelves;
  const cell = WIDTH / Math.max(columns.length, 8), shelf = HEIGHT / shelves.length, row = DEPTH / 2;
  const left = WIDTH / 2 - cell * columns.length;
  const centreX = columns.map((_, i) => left + cell * (i + 0.5));
  const centreY = shelves.map((_, i) => -HEIGHT / 2 + shelf * (i + 0.5));
  const centreZ = [DEPTH / 4, -DEPTH / 4];
  const entering = before ? before.columns.length : columns.length;
  const slide = 1 - ease(Math.min(1, age / ENTER_MS)), fading = 1 - Math.min(1, age / FADE_MS);
  const paints = new Map();
  const drawn = [];

  drawFrame(context, scene, project, shelf);
  for (const x of farthestFirst(centreX, eye[0])) {
    const column = columns[x];
    const isNew = x >= entering;
    const offset = isNew ? slide * cell * 2 : 0;
    const goneBefore = before && before.columns[x] ? before.columns[x].gone : column.gone;
    const fade = fading * Math.max(0, column.gone - goneBefore);
    const whole = column.gone < 1 || fade > 0;
    const alpha = (isNew ? 1 - slide : 1) * (column.gone < 1 ? 1 : fade);
    for (const y of farthestFirst(centreY, eye[1])) {
      for (const z of farthestFirst(centreZ, eye[2])) {
        const norms = z === 0 ? scene.keys : scene.values;
        const norm = Math.min(1, norms.all[y * columns.length + x] / norms.tall);
        const box = { x, y, z, faces: [] };
        const x0 = centreX[x] - cell * 0.42 + offset, x1 = centreX[x] + cell * 0.42 + offset;
        const y0 = centreY[y] - shelf * 0.42, tall = shelf * (0.22 + 0.62 * norm);
        const z0 = centreZ[z] - row * 0.4, z1 = centreZ[z] + row * 0.4;
        if (whole) {
          const paint = paintFor(paints, scene, column, z);
          fillBox(context, box, project, eye, [x0, x1, y0, y0 + tall, z0, z1], paint, alpha);
        } else fillGhost(context, box, project, scene, [x0, x1, y0, z0, z1]);
        drawn.push(box);
      }
    }
  }
  drawLabels(context, scene, project, { cell, shelf, left, centreX, centreY, width });
  return drawn;
}

const ease = (t) => 1 - (1 - t) * (1 - t);

function paintFor(paints, scene, column, z) {
  const key = `${z}:${column.brightness}:${column.gone}:${column.reused}`;
  if (!paints.has(key)) {
    const hue = mix(scene.ground, z === 0 ? scene.key : scene.value, 0.18 + 0.82 * column.brightness);
    const body = mix(hue, scene.gone, 0.5 * column.gone);
    const cap = column.reused > 0 ? mix(body, scene.saved, 0.35 + 0.65 * column.reused) : mix(body, [255, 255, 255], 0.28);
    paints.set(key, { front: css(body), side: css(mix(body, [0, 0, 0], 0.3)), top: css(cap) });
  }
  return paints.get(key);
}

function fillBox(context, box, project, eye, [x0, x1, y0, y1, z0, z1], paint, alpha) {
  context.globalAlpha = alpha;
  const face = (paintOf, ...corners) => {
    const points = corners.map((corner) => project(...corner));
    fill(context, points, paintOf);
    box.faces.push(points);
  };
  const x = eye[0] > x1 ? x1 : x0, y = eye[1] > y1 ? y1 : y0, z = eye[2] > z1 ? z1 : z0;
  if (eye[0] > x1 || eye[0] < x0) face(paint.side, [x, y0, z0], [x, y0, z1], [x, y1, z1], [x, y1, z0]);
  if (eye[1] > y1 || eye[1] < y0) face(paint.top, [x0, y, z0], [x1, y, z0], [x1, y, z1], [x0, y, z1]);
  if (eye[2] > z1 || eye[2] < z0) face(paint.front, [x0, y0, z], [x1, y0, z], [x1, y1, z], [x0, y1, z]);
  context.globalAlpha = 1;
}

function fillGhost(context, box, project, scene, [x0, x1, y0, z0, z1]) {
  const points = [[x0, z0], [x1, z0], [x1, z1], [x0, z1]].map(([x, z]) => project(x, y0, z));
  fill(context, points, css(scene.gone, 0.14));
  context.strokeStyle = css(scene.gone, 0.55);
  context.lineWidth = 0.7;
  context.beginPath();
  context.moveTo(...points[0]);
  context.lineTo(...points[2]);
  context.stroke();
  box.faces.push(points);
}

function fill(context, points, paint) {
  context.fillStyle = paint;
  context.beginPath();
  context.moveTo(points[0][0], points[0][1]);
  for (let i = 1; i < points.length; i++) context.lineTo(points[i][0], points[i][1]);
  context.closePath();
  context.fill();
}

function drawFrame(context, scene, project, shelf) {
  context.strokeStyle = css(scene.text, 0.16);
  context.lineWidth = 1;
  const [x, z] = [WIDTH / 2 + 0.03, DEPTH / 2];
  const step = Math.max(1, Math.ceil(scene.shelves.length / 16));
  for (let i = 0; i < scene.shelves.length; i += step) {
    const y = -HEIGHT / 2 + shelf * i;
    const points = [[-x, -z], [x, -z], [x, z], [-x, z]].map(([px, pz]) => project(px, y, pz));
    context.beginPath();
    context.moveTo(...points[0]);
    for (const point of [...points.slice(1), points[0]]) context.lineTo(...point);
    context.stroke();
  }
}

function drawLabels(context, scene, project, { cell, shelf, left, centreX, centreY, width }) {
  context.fillStyle = css(scene.text, 0.8);
  context.font = `12px ${scene.font}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const lowest = project(-WIDTH / 2, centreY[0], DEPTH / 2);
  const highest = project(-WIDTH / 2, centreY[centreY.length - 1], DEPTH / 2);
  const room = Math.abs(lowest[1] - highest[1]) / Math.max(1, centreY.length - 1);
  const every = Math.max(1, Math.ceil(15 / Math.max(room, 0.1)));
  scene.shelves.forEach((label, i) => {
    if (i % every && i !== scene.shelves.length - 1) return;
    if (i === scene.shelves.length - 1 && i % every && (i % every) * room < 13) return;
    const [x, y] = project(-WIDTH / 2 - 0.05, centreY[i], DEPTH / 2);
    context.fillText(width < 520 ? label.replace(/layers? /, "") : label, Math.max(x, 20), y);
  });

  context.textAlign = "center";
  context.textBaseline = "top";
  const floor = -HEIGHT / 2 - 0.02;
  let last = -Infinity;
  scene.columns.forEach((column, i) => {
    if (!column.start) return;
    const [x0, y0] = project(left + cell * i, floor, DEPTH / 2);
    context.fillRect(x0 - 0.5, y0, 1, 5);
    const name = column.block.replace(/^blocks? /, "").replace(/, shared.*/, "").replace("block given back", "–");
    const [x, y] = project(centreX[i], floor, DEPTH / 2);
    const half = context.measureText(name).width / 2;
    if (x - half < last + 6) return;
    last = x + half;
    context.fillText(name, x, y + 7);
  });
}

// Pointing

function boxAt(drawn, x, y) {
  for (let i = drawn.length - 1; i >= 0; i--)
    if (drawn[i].faces.some((points) => inside(points, x, y))) return drawn[i];
  return null;
}

function inside(points, x, y) {
  let within = false;
  for (let i = 0, j = points.length - 1; i < points.length; j = i++) {
    const [xi, yi] = points[i], [xj, yj] = points[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) within = !within;
  }
  return within;
}

function describe(scene, box) {
  const column = scene.columns[box.x], at = box.y * scene.columns.length + box.x;
  const key = scene.keys.all[at], value = scene.values.all[at];
  const norm = (size) => (size >= 100 ? size.toFixed(0) : size.toPrecision(3));
  return `${column.label}\n${scene.shelves[box.y]}, ${box.z === 0 ? "key" : "value"}, ${column.block}\n` +
    `norm of key ${norm(key)}, of value ${norm(value)}\n${column.state}`;
}

function drawLegend(legend, scene) {
  const entries = [
    ["key", css(scene.key)],
    ["value", css(scene.value)],
    ["green top: from the pool", css(scene.saved)],
    ["faint: cannot be reused", css(mix(scene.ground, scene.key, 0.47))],
    ["struck out: evicted", `linear-gradient(135deg, transparent 44%, ${css(scene.gone)} 44% 56%, transparent 56%), ${css(scene.gone, 0.2)}`],
  ];
  legend.replaceChildren(
    ...entries.map(([name, paint]) => {
      const item = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.style.background = paint;
      item.append(swatch, name);
      return item;
    }),
  );
}
