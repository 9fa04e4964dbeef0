/** Extended header records of a tar archive: `<length> <key>=<value>\n`, one after the other. */
import { ImageRefusal } from '../refusal.ts';

export type PaxRecords = ReadonlyMap<string, Buffer>;

export function readPaxRecords(bytes: Buffer): PaxRecords {
  const records = new Map<string, Buffer>();
  let at = 0;
  while (at < bytes.length) {
    const space = bytes.indexOf(0x20, at);
    const digits = bytes.toString('latin1', at, Math.max(at, space));
    const length = /^[1-9]\d{0,7}$/.test(digits) ? Number(digits) : 0;
    const record = bytes.subarray(space + 1, at + length);
    const equals = record.indexOf(0x3d);
    const isWhole = at + length <= bytes.length && record.at(-1) === 0x0a;
    if (length <= digits.length + 1 || !isWhole || equals < 1) {
      throw new ImageRefusal('a layer has a damaged extended header');
    }
    records.set(record.toString('utf8', 0, equals), Buffer.from(record.subarray(equals + 1, -1)));
    at += length;
  }
  return records;
}

/** Undefined where the record is not there. */
export function paxNumber(records: PaxRecords, key: string): number | undefined {
  const text = records.get(key)?.toString('latin1');
  if (text === undefined || text === '') return undefined;
  if (!/^-?\d{1,15}(\.\d*)?$/.test(text)) {
    throw new ImageRefusal(`a layer has an extended header with a wrong ${key}`);
  }
  return Math.trunc(Number(text));
}
