// Numbers, bytes and times for people.

const WHOLE = new Intl.NumberFormat("en");

export const count = (n) => WHOLE.format(n);

export function short(n) {
  if (n < 10_000) return WHOLE.format(n);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size * 0.9995) return `${(n / size).toFixed(n / size < 99.95 ? 1 : 0)} ${unit}`;
  }
  return String(n);
}

export function rate(perSecond) {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0";
  return perSecond < 9.95 ? perSecond.toFixed(1) : short(Math.round(perSecond));
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  let value = n;
  for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    value /= 1024;
    if (value < 1000 || unit === "PiB") return `${value.toFixed(value < 9.95 ? 1 : 0)} ${unit}`;
  }
  return "";
}

export function span(seconds) {
  if (seconds < 1) return "0 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// A time in microseconds since 1970.
export function time(micros) {
  return new Date(micros / 1000).toLocaleString("sv");
}

// The fill level of a queue, in thousandths of its limits; "" below `from`.
export const filled = (thousandths, from = 0) => (thousandths < from ? "" : thousandths >= 1000 ? "full" : `${Math.floor(thousandths / 10)} % full`);

export const plural = (n, singular, many = `${singular}s`) => `${count(n)} ${n === 1 ? singular : many}`;
