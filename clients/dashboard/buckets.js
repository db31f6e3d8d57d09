// Latencies as the server counts them: in 2 % buckets from 0.1 ms to 100 s (rtts/metrics.py), so
// that points add up and the quantiles found here are the ones the server finds.

const LOWEST_MS = 0.1;
const GROWTH = 1.02;

/** What a bucket stands for: its middle, in milliseconds. */
export const bucketMs = (bucket) => LOWEST_MS * GROWTH ** (Number(bucket) + 0.5);

/** Adds the counts of `more` ({bucket: count}, or nothing) to a Map. */
export function addBuckets(counts, more) {
  for (const bucket in more) {
    const number = Number(bucket);
    counts.set(number, (counts.get(number) ?? 0) + more[bucket]);
  }
}

/** How many values a Map of buckets holds. */
export function total(counts) {
  let sum = 0;
  for (const count of counts.values()) sum += count;
  return sum;
}

/**
 * Quantiles by nearest rank, in milliseconds.
 * @param {Map<number, number>} counts
 * @param {number[]} shares rising, 0 to 1
 * @returns {(number | null)[]} null where there are no values
 */
export function quantiles(counts, shares) {
  const count = total(counts);
  if (!count) return shares.map(() => null);
  const ranks = shares.map((share) => Math.ceil(share * count));
  const found = [];
  let seen = 0;
  for (const [bucket, n] of [...counts].sort((a, b) => a[0] - b[0])) {
    seen += n;
    while (found.length < ranks.length && seen >= ranks[found.length]) found.push(bucketMs(bucket));
  }
  return found;
}

// Ten steps a decade: fine enough to see two humps, coarse enough for a phone.
const STEPS = 10;

/**
 * A histogram over logarithmic bins.
 * @returns {{from: number, to: number, count: number}[]} ms; without leading and trailing zeros
 */
export function histogram(counts, alwaysMs) {
  const binOf = (ms) => Math.floor(STEPS * Math.log10(ms) + 1e-9);
  const bins = new Map();
  for (const [bucket, count] of counts) {
    const bin = binOf(bucketMs(bucket));
    bins.set(bin, (bins.get(bin) ?? 0) + count);
  }
  if (!bins.size) return [];
  const keys = [...bins.keys(), binOf(alwaysMs)];
  const shown = [];
  for (let bin = Math.min(...keys); bin <= Math.max(...keys); bin++) {
    shown.push({ from: 10 ** (bin / STEPS), to: 10 ** ((bin + 1) / STEPS), count: bins.get(bin) ?? 0 });
  }
  return shown;
}
