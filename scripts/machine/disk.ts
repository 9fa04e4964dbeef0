/** The machine's disk: its root, this checkout, and what set-up has made here; and the key that opens it. */
import { cp, mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { run } from '../../host-agent/process/run-command.ts';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import { failureReason } from '../../host-agent/setup/failure-reason.ts';
import type { Installation } from '../../host-agent/setup/setup.ts';
import type { Outcome } from '../../host-agent/setup/step.ts';
import type { Locations } from '../locations.ts';

/** What this machine needs to make the other one. */
export const HOST_PACKAGES: readonly string[] = [
  'e2fsprogs',
  'mmdebstrap',
  'openssh-client',
  'qemu-system-x86',
];
export const CHECKOUT = '/sandgate';
const HOSTNAME = 'sandgate-test-machine';
const SIZE = '12G';
/** What goes to the cache of the machine once it runs. */
export const CACHE_ARCHIVE = '/sandgate-cache.tar';
/** Nobody logs in at a terminal, and the clock is not set; each of these takes its time where it is emulated. */
const UNWANTED = [
  'apt-daily-upgrade.timer',
  'apt-daily.timer',
  'dpkg-db-backup.timer',
  'fstrim.timer',
  'getty@tty1.service',
  'serial-getty@ttyS0.service',
  'systemd-logind.service',
  'systemd-pstore.service',
  'systemd-timesyncd.service',
];
/** As the user network of QEMU has it. */
const NETWORK = `[Match]
Type=ether

[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
`;
const NAME_SERVER = '10.0.2.3';

export interface Disk {
  path: string;
  kernel: string;
  initialRamDisk: string;
  /** Opens the machine to root. */
  keyPath: string;
}

interface Parts {
  workDir: string;
  /** A folder with the machine's Debian. */
  root: string;
  places: Locations;
  image: Installation['image'];
}

export async function makeDisk({ workDir, root, places, image }: Parts): Promise<Outcome<Disk>> {
  const tree = join(workDir, 'tree');
  await command('cp', ['-a', '--reflink=auto', root, tree]);
  const boot = await readdir(join(tree, 'boot'));
  const bootFile = (prefix: string): string =>
    join(root, 'boot', boot.find((name) => name.startsWith(prefix)) ?? prefix);
  const keyPath = join(workDir, 'key');
  await command('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', keyPath]);
  await configure(tree);
  await mkdir(join(tree, 'root/.ssh'), { recursive: true, mode: 0o700 });
  await cp(`${keyPath}.pub`, join(tree, 'root/.ssh/authorized_keys'));
  await copyCheckout(places.repositoryDir, join(tree, CHECKOUT));
  await packCache(places.cacheDir, image.rootfsPath, join(tree, CACHE_ARCHIVE));
  const path = join(workDir, 'disk');
  await command('truncate', ['--size', SIZE, path]);
  await command('mke2fs', [
    '-q',
    '-F',
    '-t',
    'ext4',
    '-O',
    '^has_journal',
    '-E',
    'lazy_itable_init=1',
    '-d',
    tree,
    path,
  ]);
  await rm(tree, { recursive: true });
  const disk = { path, kernel: bootFile('vmlinuz-'), initialRamDisk: bootFile('initrd.img-'), keyPath };
  return { value: disk, did: SIZE };
}

async function configure(tree: string): Promise<void> {
  const write = (path: string, text: string): Promise<void> => writeFile(join(tree, path), text);
  await write('etc/hostname', `${HOSTNAME}\n`);
  await write('etc/hosts', `127.0.0.1 localhost ${HOSTNAME}\n`);
  await write('etc/fstab', '/dev/vda / ext4 noatime 0 1\n');
  await write('etc/systemd/network/10-user.network', NETWORK);
  await rm(join(tree, 'etc/resolv.conf'), { force: true });
  await write('etc/resolv.conf', `nameserver ${NAME_SERVER}\n`);
  const units = join(tree, 'etc/systemd/system');
  for (const unit of UNWANTED) await replaceByLink(join(units, unit), '/dev/null');
  await replaceByLink(join(units, 'default.target'), '/usr/lib/systemd/system/multi-user.target');
  const networkd = 'systemd-networkd.service';
  const wanted = join(units, 'multi-user.target.wants', networkd);
  await replaceByLink(wanted, `/usr/lib/systemd/system/${networkd}`);
}

async function replaceByLink(path: string, target: string): Promise<void> {
  await rm(path, { force: true });
  await symlink(target, path);
}

/** Without what belongs to this machine alone. */
async function copyCheckout(from: string, to: string): Promise<void> {
  await mkdir(to);
  const names = (await readdir(from)).filter((name) => name !== '.git' && name !== '.sandgate');
  await command('cp', ['-a', '--reflink=auto', '-t', to, ...names.map((name) => join(from, name))]);
}

/**
 * runsc, the guest programs, the stream keeper, the library of digests and the default image. In an archive: set-up builds an image anew whose times
 * it does not find as they were, and mke2fs knows no parts of a second.
 */
async function packCache(from: string, rootfsPath: string, archive: string): Promise<void> {
  const image = relative(from, dirname(rootfsPath));
  await command('tar', [
    '--create',
    '--format=posix',
    '--file',
    archive,
    '-C',
    from,
    'digest',
    'guest',
    'runsc',
    'stream-keeper',
    image,
  ]);
}

async function command(name: string, args: readonly string[]): Promise<void> {
  const done = await run(name, args);
  if (done.exitCode !== 0) throw new SetupFailure(`${name}: ${failureReason(done.tail)}`);
}
