/**
 * Images in a registry, fetched by skopeo: it knows the registries' ways of signing in and the machine's settings for
 * them (`/etc/containers`, `skopeo login`). What it brings is checked here all the same.
 */
import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../../process/run-command.ts';
import { MAX_MANIFEST_BYTES } from '../limits.ts';
import { ImageRefusal } from '../refusal.ts';
import type { ImageBlobs } from './blobs.ts';

/** Rules on signatures that the operator may have; without such a file skopeo wants to be told that there are none. */
const POLICY_FILE = '/etc/containers/policy.json';
const INSPECT_TIMEOUT_MS = 2 * 60_000;
const COPY_TIMEOUT_MS = 30 * 60_000;

export interface RegistryPlace {
  repository: string;
  /** A registry on this very machine may speak plain HTTP; skopeo still tries TLS first. */
  isLoopback: boolean;
  /** Private, and on the disk of the image store. */
  workDir: string;
}

export function registryBlobs({ repository, isLoopback, workDir }: RegistryPlace): ImageBlobs {
  const reference = (digest: string): string => `docker://${repository}@${digest}`;
  return {
    async document(digest) {
      const tls = isLoopback ? ['--tls-verify=false'] : [];
      const stdout = await skopeo(['inspect', '--raw', ...tls, reference(digest)], {
        workDir,
        maxFileBytes: MAX_MANIFEST_BYTES,
        timeoutMs: INSPECT_TIMEOUT_MS,
      });
      return Buffer.from(stdout, 'utf8');
    },
    async fetch({ config, layers }, digest) {
      const dir = join(workDir, 'blobs');
      await mkdir(dir, { mode: 0o700 });
      const tls = isLoopback ? ['--src-tls-verify=false'] : [];
      await skopeo(['copy', '--quiet', ...tls, reference(digest), `dir:${dir}`], {
        workDir,
        // A registry that sends more than the manifest says is stopped there.
        maxFileBytes: Math.max(MAX_MANIFEST_BYTES, ...[config, ...layers].map(({ size }) => size)),
        timeoutMs: COPY_TIMEOUT_MS,
      });
      return (blob) => join(dir, blob.digest.slice('sha256:'.length));
    },
  };
}

interface SkopeoBounds {
  workDir: string;
  maxFileBytes: number;
  timeoutMs: number;
}

async function skopeo(args: readonly string[], bounds: SkopeoBounds): Promise<string> {
  const hasPolicy = await access(POLICY_FILE).then(
    () => true,
    () => false,
  );
  const policy = hasPolicy ? [] : ['--insecure-policy'];
  const timeout = `--command-timeout=${Math.round(bounds.timeoutMs / 1000)}s`;
  const result = await run(
    'prlimit',
    [`--fsize=${bounds.maxFileBytes}`, '--core=0', '--', 'skopeo', ...policy, timeout, ...args],
    { environment: { ...process.env, TMPDIR: bounds.workDir }, cwd: bounds.workDir },
  );
  if (result.exitCode !== 0) throw new ImageRefusal(`skopeo ${args[0]}: ${lastReason(result.tail)}`);
  return result.stdout;
}

/** skopeo logs lines of `time="…" level=fatal msg="…"`. */
function lastReason(tail: string): string {
  const line = tail.split('\n').at(-1) ?? '';
  const message = /msg="((?:[^"\\]|\\.)*)"/.exec(line)?.[1]?.replaceAll('\\"', '"');
  return (message ?? line).slice(0, 500) || 'it failed';
}
