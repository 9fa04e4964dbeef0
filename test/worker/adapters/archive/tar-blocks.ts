/** Parts of tar archives as texts in which each character is a byte. */
const BLOCK = 512;
export const END = '\0'.repeat(2 * BLOCK);

export function blockOf(name: string, content: string, type = '0'): string {
  const octal = (number: number, digits: number) => number.toString(8).padStart(digits, '0');
  const owner = `${octal(0o644, 7)}\0${octal(0, 7)}\0${octal(0, 7)}\0`;
  const size = `${octal(content.length, 11)}\0${octal(1_700_000_000, 11)}\0`;
  const header = `${name.padEnd(100, '\0')}${owner}${size}        ${type}`.padEnd(BLOCK, '\0');
  return header + content + '\0'.repeat((BLOCK - (content.length % BLOCK)) % BLOCK);
}

/** An extended header for the entry behind it. */
export function paxBlock(key: string, value: string): string {
  const rest = ` ${key}=${bytesOf(value)}\n`;
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return blockOf('pax', `${length}${rest}`, 'x');
}

function bytesOf(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join('');
}
