/**
 * The systemd unit. What it does not forbid is what runsc needs to make a sandbox: mounts, namespaces, control groups, other
 * users' ids. `systemd-analyze security --offline=true` gives the figure that a test holds.
 */
import type { Installation } from '../setup/setup.ts';
import { insideRoot, type Layout } from './layout.ts';
import { AGENT_NODE_FLAGS } from './node-flags.ts';

/** A stop waits for executions that run; systemd waits longer than that, for the sandboxes to be removed. */
const DRAIN_TIMEOUT_S = 120;
const STOP_TIMEOUT_S = DRAIN_TIMEOUT_S + 60;
const WATCHDOG_S = 60;

/**
 * Only the agent is systemd's to kill. Were the rest killed with an agent that died, so would be the process that ends its
 * sandboxes: by version 1 of cgroups a frozen process outlives SIGKILL, and systemd waits for it twice STOP_TIMEOUT_S before it
 * starts the agent again. What is left ends by itself, or is removed by the next start or by `uninstall`.
 */
const KILL_MODE = 'process';

/** By it the agent knows that another one follows, and leaves that what is at rest; any other stop leaves nothing. */
export const RESTART_KILL_SIGNAL = 'SIGUSR2';

/** Found by taking one after the other away. Without CAP_SYS_PTRACE, /proc must show other users' processes. */
const CAPABILITIES = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_KILL',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_ADMIN',
  'CAP_SYS_CHROOT',
];

export type UnitPaths = Pick<
  Installation,
  'runscPath' | 'imagesDir' | 'guestDir' | 'digestLibrary' | 'streamKeeperPath'
>;

export function unitText(layout: Layout, paths: UnitPaths): string {
  const at = (path: string): string => insideRoot(layout, path);
  const program = at(layout.programDir);
  return `[Unit]
Description=Sandgate host agent
After=network-online.target
Wants=network-online.target
ConditionPathExists=${at(layout.hostDir)}/identity.json
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart=${[`${program}/node`, ...AGENT_NODE_FLAGS, `${program}/host-agent/main.ts`].join(' ')}
Environment=SANDGATE_STATE_DIR=${at(layout.stateDir)}
Environment=SANDGATE_RUNSC=${at(paths.runscPath)}
Environment=SANDGATE_IMAGES_DIR=${at(paths.imagesDir)}
Environment=SANDGATE_GUEST_DIR=${at(paths.guestDir)}
Environment=SANDGATE_DIGEST_LIBRARY=${at(paths.digestLibrary)}
Environment=SANDGATE_STREAM_KEEPER=${at(paths.streamKeeperPath)}
Environment=SANDGATE_DRAIN_TIMEOUT_S=${DRAIN_TIMEOUT_S}
EnvironmentFile=${at(layout.settingsPath)}
Restart=always
RestartSec=2
WatchdogSec=${WATCHDOG_S}
TimeoutStartSec=120
TimeoutStopSec=${STOP_TIMEOUT_S}
KillMode=${KILL_MODE}
RestartKillSignal=${RESTART_KILL_SIGNAL}
LimitNOFILE=65536
LimitCORE=0
TasksMax=infinity
UMask=0077

NoNewPrivileges=yes
CapabilityBoundingSet=${CAPABILITIES.join(' ')}
ProtectSystem=strict
ReadWritePaths=${at(layout.stateDir)} /sys/fs/cgroup
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
PrivateMounts=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
`;
}
