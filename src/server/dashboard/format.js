// Numbers as people read them.

const scaled = (value, base, units, digits = 1) => {
  let unit = 0;
  while (Math.abs(value) >= base && unit + 1 < units.length) {
    value /= base;
    ++unit;
  }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : digits)} ${units[unit]}`.trim();
};

export const bytes = (value) => scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
export const rate = (value) => `${scaled(value, 1000, ['B', 'kB', 'MB', 'GB', 'TB'])}/s`;
export const products = (value) => `${scaled(value, 1000, ['', 'k', 'M', 'G', 'T', 'P'])} MAC/s`;
export const count = (value) => Math.round(value).toLocaleString('en');
export const percent = (part) => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;

export function seconds(value) {
  if (value < 0) return '–';
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 2 : 1)} ms`;
  return value < 100 ? `${value.toFixed(2)} s` : `${Math.round(value)} s`;
}

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
