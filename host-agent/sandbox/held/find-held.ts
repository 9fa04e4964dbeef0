/** Looks for what a former agent left at rest, and this one can go on with. */
import { readdir } from 'node:fs/promises';
import type { Engine } from '../engine.ts';
import { type HeldState, readHeldState } from './held-state.ts';

export interface HeldSandbox {
  sandboxId: string;
  state: HeldState;
}

/** Those whose streams, processes, control group and folder are there, and whose programs are those of this agent. */
export async function findHeld({
  runsc,
  streamKeeper,
  cgroups,
  bundles,
  guest,
  facts,
}: Engine): Promise<HeldSandbox[]> {
  // Asked in any case: it waits for us.
  const kept = await streamKeeper.names();
  const held = (await readdir(bundles.dir)).flatMap((sandboxId) => {
    const state = readHeldState(bundles.pathOf(sandboxId));
    return state === undefined ? [] : [{ sandboxId, state }];
  });
  if (held.length === 0) return [];
  const groups = new Set(await cgroups.list());
  const living = new Set((await runsc.sandboxProcesses()).map(({ sandboxId }) => sandboxId));
  return held.filter(
    ({ sandboxId, state }) =>
      kept.has(sandboxId) &&
      groups.has(sandboxId) &&
      living.has(sandboxId) &&
      state.runsc_version === facts.runscVersion &&
      state.sandbox.guest === guest,
  );
}
