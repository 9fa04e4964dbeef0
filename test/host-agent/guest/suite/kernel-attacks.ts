/** Cells that speak on the kernel's own control pair. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { type GuestUnderTest, must } from '../guest-under-test.ts';
import { startPython } from './cells.ts';

const SPEAK = `
import json, os
def speak(head, text=b""):
    head = json.dumps(head).encode()
    body = len(head).to_bytes(4, "big") + head + text
    data = len(body).to_bytes(4, "big") + body
    while data:
        data = data[os.write(199, data):]
def result(id, **more):
    speak({"type": "result", "id": id, "status": "ok", "value": None, "value_characters": None, "error": None,
        "results": [], "exit_code": None, "cpu_ms": 0, **more})
`;

export function describeKernelAttacks(guest: () => GuestUnderTest): void {
  let kernel: Kernel;
  const run = (code: string) => kernel.execute({ code, onOutput: () => undefined });

  beforeEach(async () => {
    kernel = await startPython(guest());
    expect(must(await run(SPEAK)).status).toBe('succeeded');
  });
  afterEach(() => kernel.dispose());

  it.each([
    ['an answer to a cell that does not run', 'result("x")'],
    ['the answer to a cell before', 'result("1")'],
    ['a second greeting', 'speak({"type": "ready", "version": "3"})'],
    ['a question for input that it was not given', 'speak({"type": "stdin_ready", "id": "2"})'],
    [
      'a call of a tool that it does not have',
      'speak({"type": "tool_call", "id": "2", "call": 1, "name": "x", "arguments": 0})',
    ],
    ['a message beyond any limit', 'os.write(199, (40 << 20).to_bytes(4, "big"))'],
    ['JSON that would be long to parse', 'speak({"type": "result", "x": [[]] * 500_000})'],
  ])('ends a kernel that sends %s (K4)', async (_what, attack) => {
    expect(await run(`${attack}\nimport time; time.sleep(60)`)).toMatchObject({
      failure: { reason: 'protocol' },
    });
    expect(kernel.alive).toBe(false);
  });

  it.each([
    ['out of its order', 'call(2)'],
    ['twice', 'call(1)\ncall(1)'],
    ['more often than may wait', 'for n in range(1, 40): call(n)'],
    ['with arguments beyond their limit', 'call(1, 2_000_000)'],
  ])('ends a kernel whose program calls %s (K4)', async (_what, attack) => {
    const call =
      'def call(n, size=0): speak({"type": "tool_call", "id": "2", "call": n, "name": "x", "arguments": size}, b"x" * size)\n';
    const program = { tools: [], onCall: () => undefined, onWaiting: () => undefined };
    const code = `${call}${attack}\nimport time; time.sleep(60)`;
    expect(await kernel.execute({ code, onOutput: () => undefined, program })).toMatchObject({
      failure: { reason: 'protocol' },
    });
    expect(kernel.alive).toBe(false);
  });

  it('ends a kernel that answers twice (K4)', async () => {
    expect(must(await run('result("2")\nresult("2")\nimport time; time.sleep(60)')).status).toBe('succeeded');
    expect(await run('1')).toMatchObject({ ok: false });
    expect(kernel.alive).toBe(false);
  });

  it('answers others while a message comes byte by byte (K4)', async () => {
    const drip = `
os.write(199, (9 << 20).to_bytes(4, "big") + b"x" * (8 << 20))
while True: os.write(199, b"x")
`;
    const ended = run(drip);
    let pings = 0;
    for (const until = performance.now() + 500; performance.now() < until; pings++)
      must(await guest().link.ping(PATIENCE_MS));
    expect(pings).toBeGreaterThan(5);
    expect(await kernel.stop(0)).toEqual({ stateLost: true });
    expect((await ended).ok).toBe(true);
  });
}
