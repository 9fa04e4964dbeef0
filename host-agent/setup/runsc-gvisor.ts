/** Fetches runsc from gVisor's own release, for machines that reach it. The Debian build is the default. */
import { createWriteStream } from 'node:fs';
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { SetupFailure } from './failure.ts';
import { type PinnedDigest, requireDigest } from './file-digest.ts';
import { GVISOR_RUNSC } from './runsc-pin.ts';

const ARCHITECTURES = new Map([
  ['amd64', 'x86_64'],
  ['arm64', 'aarch64'],
]);
const DOWNLOAD_TIMEOUT_MS = 300_000;

export type GvisorDownload = {
  architecture: string;
  workDir: string;
  target: string;
  /** Hex of the SHA-512 the operator expects; without it the release's own list decides. */
  expectedSha512?: string | undefined;
  fetch?: typeof fetch;
};

/** The digest list comes over TLS from the same place as the program, as gVisor's own instructions have it. */
export async function fetchGvisorRunsc(
  download: GvisorDownload,
  detail: (text: string) => void,
): Promise<void> {
  const get = download.fetch ?? fetch;
  const uri = gvisorUri(download.architecture);
  detail('downloading the digest');
  const listed = parseSha512File(await (await getOk(get, `${uri}.sha512`)).text());
  if (download.expectedSha512 !== undefined && download.expectedSha512 !== listed.hex) {
    throw new SetupFailure(
      `gVisor lists sha512 ${listed.hex} for release ${GVISOR_RUNSC.release}, SANDGATE_RUNSC_SHA512 expects ` +
        download.expectedSha512,
    );
  }
  detail('downloading runsc');
  const response = await getOk(get, uri);
  if (response.body === null) throw new SetupFailure(`${uri} answered without a body`);
  const binary = join(download.workDir, 'runsc');
  await pipeline(response.body, createWriteStream(binary));
  await requireDigest('the runsc program', binary, listed);
  await chmod(binary, 0o755);
  await mkdir(dirname(download.target), { recursive: true });
  await writeFile(`${download.target}.sha512`, `${listed.hex}  runsc\n`);
  await rename(binary, download.target);
}

/** The digest a cached program was verified against, or undefined when there is none. */
export async function cachedGvisorDigest(target: string): Promise<PinnedDigest | undefined> {
  const text = await readFile(`${target}.sha512`, 'utf8').catch(() => undefined);
  return text === undefined ? undefined : parseSha512File(text);
}

export function gvisorUri(architecture: string): string {
  const name = ARCHITECTURES.get(architecture);
  if (name === undefined) throw new SetupFailure(`gVisor has no release for architecture ${architecture}`);
  return `${GVISOR_RUNSC.baseUri}/${GVISOR_RUNSC.release}/${name}/runsc`;
}

/** A line as sha512sum writes it: the digest, two characters, the file's name. */
export function parseSha512File(text: string): PinnedDigest {
  const hex = /^([0-9a-f]{128}) [ *](?:.*\/)?runsc\s*$/m.exec(text)?.[1];
  if (hex === undefined)
    throw new SetupFailure('the sha512 file of the runsc release names no digest for runsc');
  return { algorithm: 'sha512', hex };
}

async function getOk(get: typeof fetch, uri: string): Promise<Response> {
  const signal = AbortSignal.timeout(DOWNLOAD_TIMEOUT_MS);
  const response = await get(uri, { signal }).catch((error: unknown) => {
    const reason =
      error instanceof Error ? (error.cause instanceof Error ? error.cause : error).message : 'no answer';
    throw new SetupFailure(`cannot download ${uri}: ${reason}`);
  });
  if (!response.ok) throw new SetupFailure(`cannot download ${uri}: HTTP ${response.status}`);
  return response;
}
