# ruff: noqa
# fmt: off
"""Score a streaming text splitter for TTS.  Standard library only.

A splitter is made by a factory, once per text:   factory(lang) -> obj   (factory() works too), where
    obj.feed(text: str) -> list[str]     segments that are now final (they can't be taken back)
    obj.flush()         -> list[str]     the rest, at the end of the text
A segment may also be an object with a .text attribute.  For a test call, a plain function
`split(text) -> list[str]` can be scored in whole-text mode only with --whole-fn.

    python score.py --splitter mypkg.text:make_splitter data/*.jsonl
    python score.py --splitter ./libs.py:sentencex_eager data/ud.jsonl --chunk token --errors 20
    python score.py --splitter x:y data/*.jsonl --fail-under hard_precision=0.97 recall=0.85 inside=0 lossy=0

Data: JSON lines {"lang", "text", "sentences": [...]}; optional "id", "set", "no_cut": [...] (strings
of the text which no segment boundary may fall inside of, soft or not), "max_len", "alt": [...] (a finer
splitting whose further cuts are allowed but not wanted).

How it counts.  Everything is aligned on the non-white-space characters of the text, so stripping
or rejoining white space costs nothing.  Characters that the splitter drops (markdown, emoji) are tolerated: a
boundary then covers the dropped run.  A quote, bracket, emoji or markdown mark on the wrong side of a cut is
counted as found but "stray".  The end of the text is never counted as a boundary.
  recall           gold sentence ends at which a segment ended
  precision        segment ends that are gold sentence ends
  hard_precision   the same, without segment ends right after clause punctuation (, ; : — 、 ， …) or a line break,
                   which a TTS splitter makes on purpose ("soft" cuts)
  end_precision    gold ends / (gold ends + false stops + inside): ignores every deliberate cut, length fallbacks too; the one to gate on
                   when early first segments and a maximum length are switched on
  false stop       a cut after . ! ? 。 etc. that is no sentence end (Dr.| Smith)
  space / cjk      a cut at plain white space / between CJK characters (what a length fallback makes)
  inside           a cut inside a token (3.|14, exam|ple.com): no white space there, no CJK either.  Must be 0.
  nocut            a cut inside a string that the case lists in no_cut.  Must be 0.
  delay            characters fed after a sentence's last character when it was emitted (0 = at once), over the
                   found sentence ends; `flushed` is the share of gold ends that came out only at flush()
  first            characters fed when the first segment of a text came out (texts whose first came by flush are left out)
  over / tiny      share of segments longer than --max-len (or the case's max_len) / with fewer than 2 letters or digits
  lossy            texts whose output loses, repeats or reorders letters or digits
  unstable         texts cut differently char by char than in random 1-6 character pieces
"""
import argparse, collections, difflib, importlib, importlib.util, inspect, json, random, re, sys, time, unicodedata

CLAUSE = set(",;:，、；：—–·…") | {"-"}
TERMINAL = set(".!?。！？…．｡")
CLOSERS = set("\"'”’»›」』）)】]》〉}*_~`")

def is_cjk(c):
    o = ord(c)
    return (0x2E80 <= o <= 0x9FFF or 0xF900 <= o <= 0xFAFF or 0xFF00 <= o <= 0xFFEF or 0x20000 <= o <= 0x3FFFF
            or 0x3000 <= o <= 0x30FF or 0xFE30 <= o <= 0xFE4F)

def symbol(c):                       # emoji and the like: a cut beside one is not "inside a token"
    return unicodedata.category(c) in ("So", "Sk", "Cs", "Mn", "Cf") or c in "“”‘’«»„"

class Text:
    """The text, its non-white-space characters and where they are."""
    def __init__(self, text):
        self.text = text
        self.pos = [i for i, c in enumerate(text) if not c.isspace()]
        self.chars = [text[i] for i in self.pos]

    def gold(self, sentences):
        ends, n, p = [], 0, 0
        for s in sentences:
            n += sum(not c.isspace() for c in s); ends.append(n)
        if n != len(self.chars): raise ValueError(f"gold sentences do not spell the text: {self.text!r}")
        return ends[:-1]

    def align(self, segments):
        """-> per segment (first, last+1) in non-white-space offsets, or None for a segment with nothing of the text"""
        spans, p, n = [], 0, len(self.chars)
        for s in segments:                                     # exact: the usual case
            cs = [c for c in s if not c.isspace()]
            if self.chars[p:p + len(cs)] != cs: break
            spans.append((p, p + len(cs)) if cs else None); p += len(cs)
        else:
            return spans
        out = [(c, k) for k, s in enumerate(segments) for c in s if not c.isspace()]
        sm = difflib.SequenceMatcher(None, self.chars, [c for c, _ in out], autojunk=False)
        first, last = {}, {}
        for a, b, size in sm.get_matching_blocks():
            for d in range(size):
                k = out[b + d][1]; first.setdefault(k, a + d); last[k] = a + d + 1
        return [(first[k], last[k]) if k in first else None for k in range(len(segments))]

def seg_text(s): return s if isinstance(s, str) else s.text

def chunks(text, mode, seed):
    if mode == "whole": return [text]
    if mode == "char": return list(text)
    if mode == "token":
        rng, out, i = random.Random(seed), [], 0
        while i < len(text):
            k = rng.choice((1, 1, 2, 3, 4, 5, 6)); out.append(text[i:i + k]); i += k
        return out
    return [text[i:i + int(mode)] for i in range(0, len(text), int(mode))]

def run(factory, lang, text, mode, seed=0, times=None):
    sp, out, fed = make(factory, lang), [], 0
    for c in chunks(text, mode, seed):
        fed += len(c); t = time.perf_counter()
        got = sp.feed(c)
        if times is not None: times.append((time.perf_counter() - t, len(c)))
        out += [(seg_text(s), fed) for s in got or ()]
    t = time.perf_counter()
    out += [(seg_text(s), None) for s in sp.flush() or ()]
    if times is not None: times.append((time.perf_counter() - t, 0))
    return [(s, f) for s, f in out if s.strip()]

def make(factory, lang):
    try: n = len([p for p in inspect.signature(factory).parameters.values() if p.default is p.empty or p.name == "lang"])
    except (TypeError, ValueError): n = 1
    return factory(lang) if n else factory()

def kind(T, b):
    """what sort of cut is this one, that is no sentence end?  b: non-white-space offset"""
    i = j = T.pos[b - 1]; k = T.pos[b]
    gap = T.text[i + 1:k]
    while j > 0 and (T.text[j] in CLOSERS or T.text[j].isspace()): j -= 1
    p, q = T.text[i], T.text[k]
    if not gap and not (is_cjk(p) or is_cjk(q) or symbol(p) or symbol(q)):
        if p in "-–—" and not p == "-" or T.text[max(0, i - 2):i + 1] in ("...", "---") or T.text[max(0, i - 1):i + 1] == "--": return "soft"
        return "inside"
    if "\n" in gap: return "soft"
    if T.text[j] in TERMINAL and T.text[j] != "…": return "stop"
    if T.text[j] in CLAUSE or p in CLAUSE: return "soft"
    if gap: return "space"
    return "cjk" if is_cjk(p) or is_cjk(q) else "soft"

def nocut_zones(T, strings):
    inv = {p: n for n, p in enumerate(T.pos)}
    for s in strings:
        for m in re.finditer(re.escape(s), T.text):
            ns = [inv[i] for i in range(*m.span()) if i in inv]
            if ns: yield ns[0], ns[-1], s

def score_case(case, res, C, max_len, errors=None):
    T = Text(case["text"]); gold = T.gold(case["sentences"])
    spans = T.align([s for s, _ in res])
    letters = lambda s: sum(c.isalnum() for c in s)
    ml = case.get("max_len") or max_len
    for s, _ in res:
        C["segments"] += 1; C["over"] += len(s) > ml; C["tiny"] += letters(s) < 2; C["chars_out"] += len(s)
        C["longest"] = max(C["longest"], len(s))
    al = lambda s: [c for c in s if c.isalnum()]
    lossy = al("".join(s for s, _ in res)) != al(T.text); C["lossy"] += lossy
    cuts = []                                                # (lo, hi, fed)
    live = [(sp, f) for sp, (_, f) in zip(spans, res) if sp]
    for (a, f), (b, _) in zip(live, live[1:]): cuts.append((a[1], max(a[1], b[0]), f))
    opt = set(T.gold(case["alt"])) - set(gold) if case.get("alt") else set()
    al_at = [0]
    for ch in T.chars: al_at.append(al_at[-1] + ch.isalnum())
    left = set(gold); C["gold"] += len(gold); C["texts"] += 1; C["cuts"] += len(cuts)
    bad = []
    for lo, hi, f in cuts:
        hit = sorted(g for g in left if lo <= g <= hi)
        if not hit:
            hit = sorted((g for g in left if al_at[lo] <= al_at[g] <= al_at[hi]), key=lambda g: abs(g - lo)); C["stray"] += bool(hit)
        if not hit and any(lo <= g <= hi or al_at[g] == al_at[lo] for g in opt): C["cuts"] -= 1; continue
        if hit:
            g = hit[0]; left.discard(g); C["tp"] += 1
            end = T.pos[g - 1] + 1
            C["flushed"] += f is None
            C.setdefault("delays", []).append(max(0, (len(T.text) if f is None else f) - end))
        else:
            k = kind(T, hi if hi < len(T.pos) else lo); C[k] += 1
            if k in ("stop", "inside") : bad.append((k, hi))
    for a, b, s in nocut_zones(T, case.get("no_cut", ())):
        if any(a < lo and hi <= b for lo, hi, _ in cuts): C["nocut"] += 1; bad.append(("nocut", b))
    if res and res[0][1] is not None:
        C.setdefault("first", []).append(res[0][1])
    if errors is not None and (bad or left or lossy):
        errors.append((case.get("id", "?"), [k for k, _ in bad] + ["missed"] * len(left) + ["lossy"] * lossy, [s for s, _ in res], case["sentences"]))
    return C

def summary(C):
    n = lambda k: C.get(k, 0)
    r = {"texts": n("texts"), "gold": n("gold"), "cuts": n("cuts")}
    tp = n("tp"); d = sorted(C.get("delays", ())); f = sorted(C.get("first", ()))
    pc = lambda xs, q: xs[min(len(xs) - 1, int(q * len(xs)))] if xs else None
    r["recall"] = tp / n("gold") if n("gold") else None
    r["precision"] = tp / n("cuts") if n("cuts") else None
    hard = n("cuts") - n("soft"); r["hard_precision"] = tp / hard if hard else None
    e = tp + n("stop") + n("inside"); r["end_precision"] = tp / e if e else None
    r["f1"] = 2 * tp / (n("gold") + hard) if n("gold") + hard else None
    for k in ("stray", "stop", "inside", "nocut", "soft", "space", "cjk", "lossy", "unstable", "longest"): r[k] = n(k)
    r["delay_mean"] = sum(d) / len(d) if d else None; r["delay_p95"] = pc(d, .95)
    r["flushed"] = n("flushed") / n("gold") if n("gold") else None
    r["first_mean"] = sum(f) / len(f) if f else None; r["first_p95"] = pc(f, .95)
    s = n("segments") or 1
    r["over"] = n("over") / s; r["tiny"] = n("tiny") / s; r["seg_len"] = n("chars_out") / s
    return r

def load(spec):
    mod, attr = spec.rsplit(":", 1)
    if mod.endswith(".py"):
        s = importlib.util.spec_from_file_location("_splitter", mod); m = importlib.util.module_from_spec(s)
        sys.modules["_splitter"] = m; s.loader.exec_module(m)
    else: m = importlib.import_module(mod)
    for a in attr.split("."): m = getattr(m, a)
    return m

def score(factory, cases, chunk="char", max_len=200, errors=None, stability=True, whole=True):
    """-> {"stream": summary, "whole": summary, "by_lang": {...}, "by_set": {...}, "speed": {...}}"""
    D = lambda: collections.Counter()
    S, W, L, B, times = D(), D(), collections.defaultdict(D), collections.defaultdict(D), []
    for n, case in enumerate(cases):
        res = run(factory, case["lang"], case["text"], chunk, n, times)
        if stability: un = [s for s, _ in res] != [s for s, _ in run(factory, case["lang"], case["text"], "token", n)]
        else: un = False
        for C in (S, L[case["lang"]], B[case.get("set", "")]):
            score_case(case, res, C, max_len, errors if C is S else None); C["unstable"] += un
        if whole: score_case(case, run(factory, case["lang"], case["text"], "whole"), W, max_len)
    ts = sorted(t for t, _ in times); tot = sum(ts)
    return {"stream": summary(S), "whole": summary(W) if whole else None,
            "by_lang": {k: summary(v) for k, v in sorted(L.items())}, "by_set": {k: summary(v) for k, v in sorted(B.items())},
            "speed": {"chars_per_s": sum(c for _, c in times) / tot if tot else None, "feed_p99_us": 1e6 * ts[int(.99 * len(ts))] if ts else None,
                      "feed_max_ms": 1e3 * ts[-1] if ts else None}}

def stress(factory, limit_s=20):
    """20,000 characters, one at a time: plain sentences; no punctuation at all; only dots; one long CJK run"""
    rng, out = random.Random(1), {}
    word = lambda: "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9)))
    texts = {"sentences": ("en", " ".join(" ".join(word() for _ in range(12)).capitalize() + "." for _ in range(240))[:20000]),
             "no_punct": ("en", " ".join(word() for _ in range(4000))[:20000]), "no_space": ("en", "a" * 20000), "dots": ("en", "a." * 10000),
             "cjk": ("zh", "".join(chr(rng.randint(0x4e00, 0x9fa5)) for _ in range(20000)))}
    for k, (lang, t) in texts.items():
        sp, t0, n, worst, longest = make(factory, lang), time.perf_counter(), 0, 0, 0
        for c in t:
            a = time.perf_counter(); got = sp.feed(c); b = time.perf_counter(); n += 1; worst = max(worst, b - a)
            for s in got or (): longest = max(longest, len(seg_text(s)))
            if b - t0 > limit_s: break
        for s in sp.flush() or (): longest = max(longest, len(seg_text(s)))
        out[k] = {"chars": n, "s": round(time.perf_counter() - t0, 3), "worst_feed_ms": round(worst * 1e3, 2), "longest": longest}
    return out

def fmt(v): return "-" if v is None else f"{v:.3f}" if isinstance(v, float) and abs(v) < 2 else f"{v:.1f}" if isinstance(v, float) else str(v)

COLS = ["gold", "cuts", "recall", "precision", "hard_precision", "end_precision", "f1", "stray", "stop", "inside", "nocut", "soft", "space", "cjk", "delay_mean", "delay_p95", "flushed", "first_mean", "first_p95",
        "seg_len", "longest", "over", "tiny", "lossy", "unstable"]

def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("data", nargs="+"); ap.add_argument("--splitter", required=True, help="module:factory or file.py:factory")
    ap.add_argument("--whole-fn", action="store_true", help="the name is a function split(text) -> list; whole-text mode only")
    ap.add_argument("--chunk", default="char", help="char (default), token (random 1-6), whole, or a number")
    ap.add_argument("--max-len", type=int, default=200); ap.add_argument("--lang", nargs="*"); ap.add_argument("--errors", type=int, default=0)
    ap.add_argument("--stress", action="store_true"); ap.add_argument("--json"); ap.add_argument("--by", choices=["lang", "set"], nargs="*", default=["lang", "set"])
    ap.add_argument("--fail-under", nargs="*", default=[], metavar="NAME=X", help="e.g. recall=.85 hard_precision=.97 (at least); inside=0 lossy=0 delay_mean=2 (at most)")
    a = ap.parse_args(argv); f = load(a.splitter)
    if a.whole_fn:
        fn = f
        class Once:
            def __init__(self, lang=None): self.b = ""
            def feed(self, t): self.b += t; return []
            def flush(self): return list(fn(self.b))
        f = Once
    cases = [json.loads(l) for p in a.data for l in open(p, encoding="utf-8") if l.strip()]
    if a.lang: cases = [c for c in cases if c["lang"] in a.lang]
    errs = []; R = score(f, cases, a.chunk, a.max_len, errs)
    if a.stress: R["stress"] = stress(f)
    rows = [("stream", R["stream"]), ("whole", R["whole"])] + [(f"{b}:{k}", v) for b in a.by for k, v in R["by_" + b].items()]
    w = {c: max(len(c), *(len(fmt(r[c])) for _, r in rows)) for c in COLS}; n = max(len(k) for k, _ in rows)
    print(" " * n, *(c.rjust(w[c]) for c in COLS))
    for k, r in rows: print(k.ljust(n), *(fmt(r[c]).rjust(w[c]) for c in COLS))
    print("speed", {k: round(v, 1) for k, v in R["speed"].items() if v is not None})
    for k, v in R.get("stress", {}).items(): print("stress", k, v)
    rank = lambda e: -3 * e[1].count("inside") - 3 * e[1].count("nocut") - 2 * e[1].count("lossy") - e[1].count("stop")
    for i, why, got, want in sorted(errs, key=rank)[:a.errors]:
        print(f"\n{i} {collections.Counter(why)}\n  got  {' ¦ '.join(got)}\n  want {' ¦ '.join(want)}")
    if a.json: json.dump(R, open(a.json, "w"), indent=1)
    bad = []
    for spec in a.fail_under:
        k, x = spec.split("="); v = R["stream"][k]; up = k in ("recall", "precision", "hard_precision", "end_precision", "f1")
        if v is None or (v < float(x) if up else v > float(x)): bad.append(f"{k}={fmt(v)} (wanted {'>=' if up else '<='} {x})")
    if bad: print("FAIL", "; ".join(bad)); return 1
    return 0

if __name__ == "__main__": sys.exit(main())
