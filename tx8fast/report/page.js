"use strict";
// The parts of the report that move: sorting, and the timeline of a group. Names only ever become text.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const sim = read("tx8fast-sim"), detail = read("tx8fast-detail");
  const COLOURS = { ne: "#2f6fb7", ct: "#e08a1e", tdma: "#8a63c9", rdma: "#3a9a4d", wdma: "#93b52a", dte: "#c94f7c", kcore: "#6d7783" };
  const $ = (id) => document.getElementById(id);

  // ---- the table of groups
  const table = $("groups"), body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const sort = (column) => {
    const head = heads[column], rows = [...body.rows];
    const value = (row) => row.cells[column].dataset.v;
    const numbers = rows.every((row) => row.cells[column].classList.contains("number"));
    const was = head.getAttribute("aria-sort");
    const down = was === null ? numbers : was === "ascending";
    const sign = down ? -1 : 1;
    rows.sort((a, b) => sign * (numbers ? value(a) - value(b) : value(a).localeCompare(value(b))) || a.dataset.group - b.dataset.group);
    heads.forEach((h) => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.forEach((row) => body.append(row));
  };
  heads.forEach((head, i) => head.firstElementChild.addEventListener("click", () => sort(i)));

  // ---- the timeline of one group
  const pick = $("pick"), canvas = $("timeline"), buffers = $("buffers");
  const order = sim.groups.map((_, i) => i).sort((a, b) => sim.groups[b].total_cycles - sim.groups[a].total_cycles || a - b);
  for (const i of order) {
    const option = document.createElement("option");
    option.value = i;
    option.textContent = detail.names[i];
    pick.append(option);
  }
  const legend = $("legend");
  for (const lane of detail.lanes) {
    const entry = document.createElement("span"), chip = document.createElement("span");
    chip.className = "chip";
    chip.style.background = COLOURS[lane];
    chip.style.marginRight = "6px";
    entry.append(chip, lane);
    legend.append(entry);
  }
  let group = -1, from = 0, to = 1;
  const LEFT = 62, LOW = 18;

  const prepare = (target) => {
    const box = target.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    target.width = Math.max(1, Math.round(box.width * ratio));
    target.height = Math.max(1, Math.round(box.height * ratio));
    const g = target.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, box.width, box.height);
    g.font = "10px system-ui, sans-serif";
    return [g, box.width, box.height];
  };
  const axis = (g, width, height) => {
    const span = to - from;
    const raw = span / 8, power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw));
    g.fillStyle = "#5b6b7b";
    g.strokeStyle = "#e4e9ee";
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = LEFT + ((at - from) / span) * (width - LEFT);
      g.beginPath();
      g.moveTo(x, 0);
      g.lineTo(x, height - LOW);
      g.stroke();
      g.textAlign = x > width - 30 ? "right" : x < LEFT + 20 ? "left" : "center";
      g.fillText(Math.round(at).toLocaleString("en"), x, height - 5);
    }
    g.textAlign = "left";
  };
  const drawTimeline = () => {
    const [g, width, height] = prepare(canvas);
    const tiles = detail.groups[group].tiles, lanes = detail.lanes.length;
    axis(g, width, height);
    if (!tiles.length) return;
    const row = (height - LOW) / tiles.length, lane = (row - 3) / lanes, scale = (width - LEFT) / (to - from);
    tiles.forEach((tile, t) => {
      const top = t * row;
      g.fillStyle = "#1c2733";
      g.fillText(`tile ${t}`, 2, top + row / 2 + 3);
      tile.forEach((intervals, k) => {
        g.fillStyle = COLOURS[detail.lanes[k]];
        for (let i = 0; i < intervals.length; i += 4) {
          const begin = intervals[i], end = begin + intervals[i + 1];
          if (end < from || begin > to) continue;
          const x = LEFT + Math.max(0, (begin - from) * scale), stop = LEFT + Math.min((end - from) * scale, width - LEFT);
          g.globalAlpha = 0.25 + (0.75 * intervals[i + 3]) / 100;
          g.fillRect(x, top + k * lane, Math.max(0.6, stop - x), Math.max(1, lane - 0.6));
        }
      });
      g.globalAlpha = 1;
      g.fillStyle = "#d8dee5";
      g.fillRect(0, top + row - 1.5, width, 0.7);
    });
  };
  const drawBuffers = () => {
    const [g, width, height] = prepare(buffers);
    const scale = (width - LEFT) / (to - from), tall = (height - LOW) / detail.spm_bytes;
    axis(g, width, height);
    detail.groups[group].buffers.forEach((b, n) => {
      const top = height - LOW - (b[0] + b[1]) * tall, high = Math.max(1, b[1] * tall - 0.5), last = b.length - 2;
      g.fillStyle = `hsl(${(n * 47) % 360} 45% 55%)`;
      const box = (begin, end, alpha) => {
        const x = LEFT + Math.max(0, (begin - from) * scale), stop = LEFT + Math.min((end - from) * scale, width - LEFT);
        if (end < from || begin > to) return;
        g.globalAlpha = alpha;
        g.fillRect(x, top, Math.max(0.6, stop - x), high);
      };
      box(b[4], b[last] + b[last + 1], 0.25);
      for (let i = 4; i < b.length; i += 2) box(b[i], b[i] + b[i + 1], 0.8);
    });
    g.globalAlpha = 1;
    g.fillStyle = "#1c2733";
    g.fillText(`${(detail.spm_bytes / 1048576).toFixed(1)} MiB`, 2, 10);
    g.fillText(`tile ${detail.groups[group].buffer_tile}`, 2, height / 2);
    g.fillText("0", 2, height - LOW);
  };
  const draw = () => {
    canvas.dataset.from = Math.round(from);
    canvas.dataset.to = Math.round(to);
    drawTimeline();
    drawBuffers();
  };
  const whole = () => {
    from = 0;
    to = Math.max(1, detail.groups[group].cycles);
    draw();
  };
  const choose = (index) => {
    group = index;
    pick.value = index;
    for (const row of body.rows) row.classList.toggle("chosen", +row.dataset.group === index);
    const found = sim.groups[index];
    $("picked").textContent = `${found.label}: ${found.cycles.toLocaleString("en")} cycles, ${found.count.toLocaleString("en")} times`;
    whole();
  };
  const move = (first, last) => {
    const end = detail.groups[group].cycles, span = Math.min(end, Math.max(last - first, Math.min(end, 64)));
    from = Math.max(0, Math.min(first, end - span));
    to = from + span;
    draw();
  };
  for (const target of [canvas, buffers]) {
    target.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = target.getBoundingClientRect(), at = Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT));
      const span = to - from, next = span * (event.deltaY < 0 ? 0.8 : 1.25), centre = from + at * span;
      move(centre - at * next, centre + (1 - at) * next);
    }, { passive: false });
    let held = null;
    target.addEventListener("pointerdown", (event) => { held = [event.clientX, from, to]; target.setPointerCapture(event.pointerId); });
    target.addEventListener("pointermove", (event) => {
      if (held === null) return;
      const shift = ((held[0] - event.clientX) / (target.getBoundingClientRect().width - LEFT)) * (held[2] - held[1]);
      move(held[1] + shift, held[2] + shift);
    });
    target.addEventListener("pointerup", () => { held = null; });
    target.addEventListener("pointercancel", () => { held = null; });
  }
  pick.addEventListener("change", () => choose(+pick.value));
  $("reset").addEventListener("click", whole);
  document.addEventListener("click", (event) => {
    const found = event.target.closest("[data-group]");
    if (found === null) return;
    choose(+found.dataset.group);
    if (!body.contains(found)) $("timelines").scrollIntoView({ behavior: "smooth" });
  });
  window.addEventListener("resize", () => { if (group >= 0) draw(); });
  window.addEventListener("beforeprint", () => { if (group >= 0) draw(); });
  if (order.length) choose(order[0]);
  document.documentElement.dataset.ready = "yes";
})();
