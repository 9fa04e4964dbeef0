/** The command as it is typed: what is wrong is one line on standard error, with an exit code. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const COMMAND = fileURLToPath(new URL('../../../host-agent/sandgate-host.ts', import.meta.url));
const COMMAND_LINE = new URL('../../../host-agent/command/command-line.ts', import.meta.url).href;
const NOBODY = 65_534;
const TOKEN = 'x'.repeat(32);

function host(argv: string[], root = temporaryFolder()) {
  const args = argv.length === 0 ? [] : [...argv, `--root=${root}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, [COMMAND, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

/** The program is read as root: a user who may not read its folder would be refused by something else. */
function hostAsNobody(argv: string[], root: string) {
  const program = `
    const { runCommandLine } = await import(${JSON.stringify(COMMAND_LINE)});
    process.setgroups([]);
    process.setgid(${NOBODY});
    process.setuid(${NOBODY});
    process.exitCode = await runCommandLine(${JSON.stringify([...argv, `--root=${root}`])});`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

describe('sandgate-host', () => {
  test('says what there is', () => {
    const { status, stdout } = host(['--help']);
    expect(status).toBe(0);
    for (const name of ['install', 'enroll', 'status', 'doctor', 'images', 'drain', 'resume', 'uninstall']) {
      expect(stdout).toContain(`\n  ${name} `);
    }
  });

  test('without a subcommand says the same and fails', () => {
    expect(host([])).toMatchObject({ status: 2, stdout: expect.stringContaining('install') });
  });

  const wrong: [string, string[], number, RegExp][] = [
    ['an unknown subcommand', ['instal'], 2, /there is no instal; it is one of install, enroll/],
    ['an unknown option', ['doctor', '--jsno'], 2, /--jsno/],
    ['an argument too many', ['status', 'now'], 2, /usage: sandgate-host status/],
    ['an argument too few', ['enroll', 'https://edge.example'], 2, /usage: sandgate-host enroll/],
    ['an edge that is no URL', ['enroll', 'edge', TOKEN], 2, /the edge URL must be https:/],
    ['an edge in the clear', ['enroll', 'http://edge.example', TOKEN], 2, /except on loopback/],
    ['an edge with another scheme', ['enroll', 'ftp://edge.example', TOKEN], 2, /must be https:/],
    ['a token that is too short', ['enroll', 'https://edge.example', 'abc'], 2, /22 to 256 characters/],
    ['a host that is not installed', ['enroll', 'https://edge.example', TOKEN], 1, /not installed/],
    ['a time that is none', ['drain', '--timeout', 'soon'], 2, /--timeout is a number of seconds/],
    ['a time without an end', ['drain', '--timeout', 'Infinity'], 2, /--timeout is a number of seconds/],
    ['a drain of nothing', ['drain'], 1, /no agent runs/],
    ['a resume of nothing', ['resume'], 1, /no agent runs/],
    ['a status of nothing', ['status'], 1, /no agent runs/],
    ['an unknown action on images', ['images', 'push'], 2, /it is list, build, import, remove or prune/],
    ['an image by name', ['images', 'remove', 'python'], 2, /by its digest/],
    ['an image that is not there', ['images', 'remove', 'ab'.repeat(32)], 1, /there is no image/],
    ['a recipe that is not there', ['images', 'build', 'cobol'], 2, /there is no recipe cobol/],
    ['an uninstall of nothing', ['uninstall'], 1, /not installed/],
  ];
  for (const [what, argv, code, line] of wrong) {
    test(`refuses ${what} in one line`, () => {
      const { status, stderr } = host(argv);
      expect(stderr).toMatch(/^sandgate-host: [^\n]+\n$/);
      expect(stderr).toMatch(line);
      expect(status).toBe(code);
    });
  }

  test.skipIf(process.getuid?.() !== 0)('enrols on no disk that is full, and uninstalls from it', () => {
    const root = temporaryFolder();
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', root]);
    try {
      const stateDir = join(root, 'var/lib/sandgate');
      mkdirSync(join(stateDir, 'host/bundles/sbx-dead'), { recursive: true });
      mkdirSync(join(root, 'etc/systemd/system'), { recursive: true });
      writeFileSync(join(root, 'etc/systemd/system/sandgate-host.service'), '');
      expect(() => writeFileSync(join(root, 'filler'), Buffer.alloc(1024 * 1024))).toThrow('ENOSPC');
      expect(host(['enroll', 'http://127.0.0.1:9', TOKEN], root)).toMatchObject({
        status: 1,
        stderr: `sandgate-host: ${stateDir}/host cannot be written: no space left on device\n`,
      });
      const { status, stderr } = host(['uninstall'], root);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      expect(existsSync(stateDir)).toBe(false);
    } finally {
      execFileSync('umount', [root]);
    }
  });

  test.skipIf(process.getuid?.() !== 0).each([
    ['installs nothing', ['install']],
    ['removes nothing', ['uninstall']],
    ['builds no image', ['images', 'build', 'python']],
    ['imports no image', ['images', 'import', `registry.example/x@sha256:${'a'.repeat(64)}`]],
  ])('%s for a user other than root, and says so in one line', (_what, argv) => {
    const root = temporaryFolder();
    chownSync(root, NOBODY, NOBODY);
    expect(hostAsNobody(argv, root)).toEqual({
      status: 1,
      stdout: '',
      stderr: 'sandgate-host: must run as root: gVisor needs it for mounts, namespaces and cgroups\n',
    });
    expect(readdirSync(root)).toEqual([]);
  });

  test('never repeats a token that it refuses', () => {
    const { stderr, stdout } = host(['enroll', 'http://127.0.0.1:9', TOKEN]);
    expect(stderr + stdout).not.toContain(TOKEN);
  });

  test('lists an empty store', () => {
    expect(host(['images'])).toMatchObject({ status: 0, stdout: 'no images\n' });
    expect(host(['images', 'list', '--json'])).toMatchObject({ status: 0, stdout: '[]\n' });
  });

  test('doctor on a machine where nothing is installed fails, with a cure for each', () => {
    const { status, stdout, stderr } = host(['doctor']);
    expect(stderr).toBe('');
    expect(status).toBe(1);
    const findings = stdout.match(/^(pass|WARN|FAIL) {2}/gm) ?? [];
    const cures = stdout.match(/^ +→ /gm) ?? [];
    expect(findings.length).toBeGreaterThan(10);
    expect(cures).toHaveLength(findings.filter((mark) => !mark.startsWith('pass')).length);
    expect(stdout).toMatch(/^FAIL {2}runsc .*\n +→ sandgate-host install$/m);
  });

  test('looks below the root it is given, and leaves nothing there', () => {
    const root = temporaryFolder();
    host(['doctor'], join(root, 'below'));
    expect(host(['images', 'list'], root).stdout).toBe('no images\n');
  });
});
