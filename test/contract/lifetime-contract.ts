import { afterEach, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { type GetSubject, LIMITS, newSandboxId, python, shell, startSandbox } from './subject.ts';

const HOG = 'hog = bytearray(4 * 1024 ** 3)\nfor at in range(0, len(hog), 4096): hog[at] = 1';

export function describeLifetime(subject: GetSubject): void {
  describe('lifetime', () => {
    const open: Sandbox[] = [];
    const start = async (): Promise<Sandbox> => {
      const sandbox = await startSandbox(subject());
      open.push(sandbox);
      return sandbox;
    };
    afterEach(async () => {
      await Promise.all(open.splice(0).map((sandbox) => sandbox.destroy()));
    });

    it('says what it runs', () => {
      const { facts } = subject().sandboxes;
      expect(facts.runscVersion).toMatch(/20240729/);
      expect(facts.images.map(({ digest }) => digest)).toContain(subject().imageDigest);
      expect(facts.capacity).toBeGreaterThan(0);
    });

    it('calls memory that ran out by its name', async () => {
      const sandbox = await start();
      expect(await python(sandbox, HOG)).toMatchObject({ status: 'oom', stateLost: true, value: null });
    });

    it('leaves nothing on the machine once it is destroyed, and is destroyed twice without harm', async () => {
      const sandbox = await start();
      await shell(sandbox, 'sleep 300 & echo begun');
      expect(await subject().tracesOf(sandbox.id)).not.toEqual([]);
      await sandbox.destroy();
      expect(await subject().tracesOf(sandbox.id)).toEqual([]);
      expect(await sandbox.lost).toEqual({ reason: 'destroyed' });
      await sandbox.destroy();
    });

    it('R50: ends a running call when it is destroyed, and a later one at once', async () => {
      const sandbox = await start();
      const destroyed = Promise.withResolvers<void>();
      const running = shell(sandbox, 'echo begin; sleep 60', {
        onOutput: () => void sandbox.destroy().then(destroyed.resolve),
      });
      expect(await running).toMatchObject({ status: 'interrupted', stdout: 'begin\n', stateLost: true });
      await destroyed.promise;
      expect(await shell(sandbox, 'echo late')).toMatchObject({ stdout: '', stateLost: true });
    });

    it('keeps sandboxes apart', async () => {
      const [one, other] = await Promise.all([start(), start()]);
      await Promise.all([python(one, 'mine = 1'), shell(one, 'echo x > /tmp/mine; export MINE=1')]);
      expect((await python(other, "'mine' in globals()")).value).toBe('False');
      expect((await shell(other, 'cat /tmp/mine')).exitCode).toBe(1);
      expect((await shell(other, 'echo $MINE')).stdout).toBe('\n');
    });

    it('removes a sandbox that a former agent left', async () => {
      const orphan = await start();
      await shell(orphan, 'sleep 300 & echo begun');
      const successor = await subject().restarted();
      const { removed } = await successor.reconcile();
      expect(removed).toContain(orphan.id);
      expect(await subject().tracesOf(orphan.id)).toEqual([]);
      expect((await successor.reconcile()).removed).toEqual([]);
    });

    it('refuses an image it does not have, limits above its caps, and a second sandbox of one id', async () => {
      const { sandboxes, imageDigest } = subject();
      const config = { sandboxId: newSandboxId(), imageDigest, limits: LIMITS, environment: {} };
      const other = `sha256:${'0'.repeat(64)}`;
      expect(await sandboxes.start({ ...config, imageDigest: other })).toMatchObject({
        code: 'image_refused',
      });
      const greedy = { ...LIMITS, memory_bytes: 2 ** 53 };
      expect(await sandboxes.start({ ...config, limits: greedy })).toMatchObject({ code: 'limits_exceeded' });
      const sandbox = await start();
      expect(await sandboxes.start({ ...config, sandboxId: sandbox.id })).toMatchObject({ ok: false });
      expect(await subject().tracesOf(config.sandboxId)).toEqual([]);
    });

    it('is full at its capacity and has room again when one is destroyed', async () => {
      const { sandboxes, imageDigest } = subject();
      const config = { imageDigest, limits: LIMITS, environment: {} };
      const all = Array.from({ length: sandboxes.facts.capacity }, () => start());
      await Promise.all(all);
      const refused = await sandboxes.start({ ...config, sandboxId: newSandboxId() });
      expect(refused).toMatchObject({ ok: false, code: 'host_full' });
      await open[0]?.destroy();
      await start();
    });
  });
}
