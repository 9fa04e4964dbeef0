import { describe, expect, it } from 'vitest';
import { type Admission, admit, availableMemory } from '../../../host-agent/sandbox/admission.ts';

const MIB = 1024 * 1024;
const limits = { cpus: 1, memory_bytes: 512 * MIB, processes: 64, workspace_bytes: MIB, tmp_bytes: MIB };
const caps = { cpus: 2, memory_bytes: 1024 * MIB, processes: 64, workspace_bytes: MIB, tmp_bytes: MIB };
const ROOMY: Admission = {
  limits,
  caps,
  sandboxes: 3,
  capacity: 4,
  availableMemoryBytes: 2048 * MIB,
  promisedMemoryBytes: 0,
  availableDiskBytes: 514 * MIB,
};

describe('admit', () => {
  it('takes a sandbox that fits, up to the caps themselves', () => {
    expect(admit(ROOMY).ok).toBe(true);
    expect(admit({ ...ROOMY, limits: caps }).ok).toBe(true);
  });

  it.each(['cpus', 'memory_bytes', 'processes', 'workspace_bytes', 'tmp_bytes'] as const)(
    'refuses %s above the host’s cap and names it',
    (name) => {
      const admitted = admit({ ...ROOMY, limits: { ...caps, [name]: caps[name] + 1 } });
      expect(admitted).toMatchObject({ ok: false, code: 'limits_exceeded' });
      expect(admitted.ok ? '' : admitted.detail).toContain(name);
    },
  );

  it('is full at its capacity', () => {
    expect(admit({ ...ROOMY, sandboxes: 4 })).toMatchObject({ ok: false, code: 'host_full' });
  });

  it('says what is short and how much room there is', () => {
    const admitted = admit({ ...ROOMY, availableMemoryBytes: 512 * MIB });
    expect(admitted.ok ? '' : admitted.detail).toBe(
      `the host has too little room (memory): ${JSON.stringify({
        sandboxes: 1,
        cpus: 2,
        memory_bytes: 256 * MIB,
        disk_bytes: 2 * MIB,
      })} is free`,
    );
  });

  it('is full when memory is short, counting what starting sandboxes were promised', () => {
    expect(admit({ ...ROOMY, availableMemoryBytes: 767 * MIB })).toMatchObject({ code: 'host_full' });
    expect(admit({ ...ROOMY, availableMemoryBytes: 768 * MIB }).ok).toBe(true);
    const promised = { ...ROOMY, availableMemoryBytes: 1024 * MIB, promisedMemoryBytes: 257 * MIB };
    expect(admit(promised)).toMatchObject({ code: 'host_full' });
  });
});

it('is full when the disk is short of what the sandbox may write', () => {
  const admitted = admit({ ...ROOMY, availableDiskBytes: 514 * MIB - 1 });
  expect(admitted).toMatchObject({ ok: false, code: 'host_full' });
});

describe('availableMemory', () => {
  it('reads MemAvailable, not MemFree', () => {
    expect(availableMemory('MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\n')).toBe(2 * MIB);
  });

  it('throws when the kernel does not say it', () => {
    expect(() => availableMemory('MemFree: 1 kB\n')).toThrow('MemAvailable');
  });
});
