"use strict";
// Ranks' work, the wait graph, memory, checkpoints and events.

function rankCard(rank, stall) {
  const waits = rank.waits || [];
  const cause = stall && stall.rank === rank.rank;
  const card = element("div", undefined, `rank${cause ? " cause" : waits.length && stall ? " waits" : ""}`);
  card.dataset.rank = rank.rank;
  card.append(element("h3", `rank ${rank.rank}` + (rank.host ? ` · ${rank.host} · ${rank.pid}` : "")));
  if (!rank.heard) {
    card.append(element("p", `not heard for ${formatSeconds(rank.heard_s)}`, "bad"));
    return card;
  }
  card.append(element("p", `${rank.command || "idle"} for ${formatSeconds(rank.command_for_s)}`));
  const list = element("ul");
  for (const stream of rank.streams || []) {
    if (stream.doing) list.append(element("li", `${stream.name}: ${stream.doing} (${formatSeconds(stream.for_s)})`));
  }
  for (const wait of waits) {
    list.append(element("li", `${wait.who} waits for ${wait.what} (${formatSeconds(wait.for_s)})`, "warn"));
  }
  for (const one of rank.collectives || []) {
    list.append(element("li", `${one.what}: ${one.phase} (${formatSeconds(one.for_s)})`));
  }
  card.append(list);
  return card;
}

function drawRanks(status) {
  const box = byId("ranks");
  const ranks = status.ranks || [];
  setChildren(box, ranks.length > 0 ? ranks.map((rank) => rankCard(rank, status.stall))
    : [element("p", "No rank is at work.", "muted")]);
  setShown("ranks-note", ranks.length > 0 && status.condition !== "running"
    ? "What each rank did when the run was last heard of:" : "");
  drawArrows(status.stall);
}

/// Edges from every waiting rank to the one it waits for.
function drawArrows(stall) {
  const svg = byId("arrows");
  svg.replaceChildren();
  const cause = stall && document.querySelector(".rank.cause");
  if (!cause) return;
  const space = svg.getBoundingClientRect();
  const middle = (node) => {
    const box = node.getBoundingClientRect();
    return [box.left + box.width / 2 - space.left, box.top + box.height / 2 - space.top];
  };
  const make = (kind, values) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
    return made;
  };
  const head = make("marker", { id: "head", markerWidth: 8, markerHeight: 8, refX: 7, refY: 4, orient: "auto" });
  head.append(make("path", { d: "M0,0 L8,4 L0,8 z", fill: "var(--bad)" }));
  svg.append(head);
  const [toX, toY] = middle(cause);
  for (const waiting of document.querySelectorAll(".rank.waits")) {
    const [fromX, fromY] = middle(waiting);
    svg.append(make("line", { x1: fromX, y1: fromY, x2: toX, y2: toY, stroke: "var(--bad)",
      "stroke-width": 2, "marker-end": "url(#head)" }));
  }
}

function meter(name, bytes, most) {
  const row = element("div", `${name}: ${formatBytes(bytes)}`);
  const bar = row.appendChild(element("div", undefined, "meter"));
  bar.appendChild(element("div")).style.width = `${(100 * bytes) / most}%`;
  return row;
}

/// Bars on a common scale, which stands below them.
function drawMemory(status) {
  const plan = Object.entries(status.memory_plan || {}).filter(([, bytes]) => bytes > 0);
  const bars = [...(status.memory || []).map((one) => [`process of rank ${one.rank}, resident`, one.resident_bytes]),
    ["a rank as planned", plan.reduce((sum, [, bytes]) => sum + bytes, 0)],
    ...plan.map(([kind, bytes]) => [`of that, ${kind.replaceAll("_", " ")}`, bytes])].filter(([, bytes]) => bytes > 0);
  const most = Math.max(...bars.map(([, bytes]) => bytes));
  const scale = element("div", undefined, "scale muted");
  scale.append(...[0, 0.25, 0.5, 0.75, 1].map((share) => element("span", formatBytes(Math.round(share * most)))));
  setChildren(byId("memory"), [...bars.map(([name, bytes]) => meter(name, bytes, most)),
    bars.length > 0 ? scale : element("p", "Not known.", "muted")]);
}

/// Checkpoints that exist, the newest first, each with the loss of its evaluation.
function drawCheckpoints(status, events) {
  const published = new Map(events.filter((event) => event.event === "checkpoint_published")
    .map((event) => [event.step, event]));
  const items = (status.checkpoints || []).map((step, at) => {
    const event = published.get(step);
    const loss = status.validation_losses?.[at] ?? null;
    const best = step === status.best_checkpoint;
    return element("li", [`step ${step}`, loss === null ? "" : `validation loss ${formatNumber(loss)}`,
      best ? "the best" : "", event ? formatBytes(event.size_bytes ?? 0) : "", event ? formatTime(event.unix_ms) : "",
    ].filter(Boolean).join(" · "), best ? "best" : "");
  }).reverse();
  setChildren(byId("checkpoints"), items.length > 0 ? items : [element("li", "There is none yet.", "muted")]);
}

const kBadEvents = new Set(
  ["rank_lost", "damage_found", "checkpoint_failed", "nodes_lost", "stalled", "failed"]);

/// Sampled texts have a place of their own.
function drawEvents(events) {
  setChildren(byId("events"), events.filter((event) => event.event !== "sampled").slice(-500).reverse().map((event) => {
    const step = event.step === undefined ? "" : ` · step ${event.step}`;
    const item = element("li", `${formatTime(event.unix_ms)} · ${event.event.replaceAll("_", " ")}${step}` +
      (event.text ? ` · ${event.text}` : ""), kBadEvents.has(event.event) ? "bad" : "");
    item.dataset.event = event.event;
    return item;
  }));
}
