import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { debianPin, requireOffered, unpackDebianRunsc } from '../../../host-agent/setup/runsc-debian.ts';
import type { DebianPin } from '../../../host-agent/setup/runsc-pin.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const PROGRAM = '#!/bin/sh\necho runsc\n';
const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');

/** A package file with a small program in runsc's place, and the pin that fits it. */
function smallPackage(): { dir: string; deb: string; pin: DebianPin; target: string } {
  const dir = temporaryFolder();
  const tree = join(dir, 'tree');
  mkdirSync(join(tree, 'DEBIAN'), { recursive: true });
  mkdirSync(join(tree, 'usr/bin'), { recursive: true });
  const control =
    'Package: runsc\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.test>\nDescription: t\n';
  writeFileSync(join(tree, 'DEBIAN/control'), control);
  writeFileSync(join(tree, 'usr/bin/runsc'), PROGRAM);
  const deb = join(dir, 'runsc.deb');
  execFileSync('dpkg-deb', ['--build', tree, deb], { stdio: 'ignore' });
  const pin = { debSha256: sha256(readFileSync(deb)), binarySha256: sha256(PROGRAM) };
  return { dir, deb, pin, target: join(dir, 'cache/runsc') };
}

describe('the pinned runsc of Debian', () => {
  test('the pinned package and program are taken, executable', async () => {
    const { deb, pin, target } = smallPackage();
    await unpackDebianRunsc(deb, pin, target);
    expect(readFileSync(target, 'utf8')).toBe(PROGRAM);
    expect(statSync(target).mode & 0o777).toBe(0o755);
  });

  test('a package with one byte more is refused before it is unpacked', async () => {
    const { deb, pin, target } = smallPackage();
    appendFileSync(deb, '\0');
    await expect(unpackDebianRunsc(deb, pin, target)).rejects.toThrow(
      `the runsc package is not the pinned file: expected sha256 ${pin.debSha256}`,
    );
    expect(existsSync(`${deb}.unpacked`)).toBe(false);
    expect(existsSync(target)).toBe(false);
  });

  test('the pinned package with another program in it is refused', async () => {
    const { deb, pin, target } = smallPackage();
    const other = { ...pin, binarySha256: sha256('another program') };
    await expect(unpackDebianRunsc(deb, other, target)).rejects.toThrow(
      'the runsc program is not the pinned file',
    );
    expect(existsSync(target)).toBe(false);
  });

  test('a mirror that offers the pinned build passes, also beside a newer one', () => {
    const pinned = ' runsc | 0.0~20240729.0-4+b7 | http://mirror.test/debian trixie/main amd64 Packages';
    expect(() => requireOffered(`${pinned.replace('b7', 'b8')}\n${pinned}\n`)).not.toThrow();
  });

  test('a mirror that replaced the pinned build is refused with both versions', () => {
    const replaced = ' runsc | 0.0~20240729.0-4+b8 | http://mirror.test/debian trixie/main amd64 Packages\n';
    expect(() => requireOffered(replaced)).toThrow(
      "Debian's mirror no longer offers the pinned runsc 0.0~20240729.0-4+b7 (it offers 0.0~20240729.0-4+b8); " +
        'update the pin in host-agent/setup/runsc-pin.ts, or set SANDGATE_RUNSC_SOURCE=gvisor',
    );
    expect(() => requireOffered('')).toThrow('(it offers none)');
  });

  test('an architecture without a pin is refused by name', () => {
    expect(() => debianPin('riscv64')).toThrow(
      'no runsc is pinned for architecture riscv64; pinned are amd64, arm64',
    );
  });
});
