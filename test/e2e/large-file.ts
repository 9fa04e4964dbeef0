/** A file far larger than any window goes into a session and out of it again, and the host's memory does not grow with it. */
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { expect } from 'vitest';
import type { SessionClient } from './client.ts';
import type { TestStack } from './stack.ts';

const MIB = 1024 * 1024;
const MAX_GROWTH_BYTES = 64 * MIB;
const BLOCK = Buffer.alloc(MIB, 'large file ');

export async function moveLargeFile(stack: TestStack, totalBytes: number): Promise<void> {
  const session = await stack.open({ limits: { workspace_bytes: totalBytes + 64 * MIB } });
  try {
    // What the first transfer compiles and warms is not what a large one costs.
    await put(session, '/files/warm', 32 * MIB);
    await drained(await get(session, '/files/warm'));
    const host = stack.hostAgentPid();
    resetPeak(host);
    const before = memoryBytes(host, 'VmRSS');
    const written = await put(session, '/files/large', totalBytes);
    expect(written.status).toBe(201);
    const digest = createHash('sha256');
    for (let at = 0; at < totalBytes; at += MIB) digest.update(BLOCK);
    expect(await written.json()).toMatchObject({ size: totalBytes, sha256: digest.digest('hex') });
    expect(await drained(await get(session, '/files/large'))).toBe(totalBytes);
    expect(memoryBytes(host, 'VmHWM') - before).toBeLessThan(MAX_GROWTH_BYTES);
  } finally {
    await session.delete();
  }
}

function get(session: SessionClient, path: string): Promise<Response> {
  return session.api.fetch('GET', `${session.path}${path}`);
}

function put(session: SessionClient, path: string, bytes: number): Promise<Response> {
  const headers = { authorization: `Bearer ${session.api.token}` };
  // A body that is a stream needs to be said to be one.
  const init: RequestInit = Object.assign(
    { method: 'PUT', headers, body: streamOf(bytes) },
    { duplex: 'half' },
  );
  return fetch(`${session.api.url}${session.path}${path}`, init);
}

export function streamOf(bytes: number): ReadableStream {
  let left = bytes;
  return new ReadableStream({
    type: 'bytes',
    pull(controller) {
      if (left === 0) return controller.close();
      const piece = Uint8Array.from(BLOCK.subarray(0, Math.min(left, MIB)));
      left -= piece.length;
      controller.enqueue(piece);
    },
  });
}

async function drained(response: Response): Promise<number> {
  expect(response.status).toBe(200);
  let bytes = 0;
  for await (const chunk of response.body ?? []) bytes += chunk.length;
  return bytes;
}

/** The highest memory counts from now on. */
function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

function memoryBytes(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(text)?.[1]) * 1024;
}
