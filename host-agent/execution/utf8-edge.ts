/** Where bytes may be cut without cutting a UTF-8 character. */

/** Length of the incomplete UTF-8 sequence at the end of `bytes`: 0 to 3; 0 also where the bytes are not UTF-8. */
export function incompleteSuffixLength(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    return sequenceLength(byte) > back ? back : 0;
  }
  return 0;
}

/** Number of continuation bytes that `bytes` begins with, at most 3: the rest of a character that was cut before. */
export function continuationPrefixLength(bytes: Uint8Array): number {
  let length = 0;
  while (length < 3 && ((bytes[length] ?? 0) & 0xc0) === 0x80) length += 1;
  return length;
}

function sequenceLength(lead: number): number {
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  if (lead >= 0xe0) return lead <= 0xef ? 3 : 1;
  return lead >= 0xc2 ? 2 : 1;
}
