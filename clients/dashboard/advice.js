// What the server says is wrong, in its order. The list changes silently; a line of its own tells
// screen readers what came and what went.

const clock = (ms) => new Date(ms).toLocaleTimeString();

function ago(ms) {
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 1) return "less than a minute";
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function item(advice, now) {
  const made = document.createElement("li");
  made.className = advice.severity;
  made.dataset.code = advice.code;
  const head = document.createElement("p");
  const kind = document.createElement("strong");
  kind.textContent = advice.severity === "problem" ? "Problem" : "Note";
  const since = document.createElement("span");
  since.className = "since";
  const stage = advice.stage ? ` in ${advice.stage.replace("_", " ")}` : "";
  since.textContent = `${stage}, since ${clock(advice.since_ms)} (${ago(now - advice.since_ms)})`;
  head.append(kind, since);
  const text = document.createElement("p");
  text.textContent = advice.text;
  const remedy = document.createElement("p");
  remedy.className = "remedy";
  remedy.textContent = advice.remedy;
  made.append(head, text, remedy);
  return made;
}

export class AdviceList {
  constructor(list, fine, announcer) {
    this.list = list;
    this.fine = fine;
    this.announcer = announcer;
    this.shown = "";
    this.codes = new Map();
  }

  show(advice, now) {
    const minute = Math.floor(now / 60_000);
    const state = JSON.stringify([advice, advice.length ? minute : 0]);
    if (state === this.shown) return;
    this.shown = state;
    this.list.replaceChildren(...advice.map((each) => item(each, now)));
    this.fine.hidden = advice.some((each) => each.severity === "problem");
    this.announce(new Map(advice.map((each) => [each.code, each])));
  }

  announce(codes) {
    const came = [...codes.values()].filter((each) => !this.codes.has(each.code));
    const went = [...this.codes.keys()].filter((code) => !codes.has(code));
    this.codes = codes;
    const words = came.map((each) => `${each.severity}: ${each.text} ${each.remedy}`);
    words.push(...went.map((code) => `over: ${code.replaceAll("_", " ")}`));
    if (words.length) this.announcer.textContent = words.join(" ");
  }
}
