/** Checks of what install has put here: runsc, guest programs, images, the unit, and the agent itself. */
import type { Outcome } from '../../../shared/errors.ts';
import { type AgentStatus, cureOfRefusal } from '../../local-control/status.ts';
import { KNOWN_RELEASES, type RunscVersion } from '../../runsc/versions.ts';
import { type Finding, fail, pass, warn } from './finding.ts';

const DAY_MS = 86_400_000;
const OLD_AFTER_DAYS = 365;
const INSTALL = 'sandgate-host install';

export function checkRunsc(version: Outcome<RunscVersion> | undefined, nowMs: number): Finding {
  if (version === undefined) return fail('runsc', 'not installed', INSTALL);
  if (!version.ok)
    return fail('runsc', version.detail, `${INSTALL}; it brings release ${KNOWN_RELEASES.join(' or ')}`);
  const { printed, release } = version.value;
  const ageDays = Math.floor((nowMs - releasedAtMs(release)) / DAY_MS);
  const found = `${printed}, ${ageDays} days old`;
  if (ageDays <= OLD_AFTER_DAYS) return pass('runsc', found);
  return warn(
    'runsc',
    found,
    'upgrade Sandgate when a version with a newer runsc is out; keep the kernel patched meanwhile',
  );
}

/** Releases are named by their day: `20240729.0`. */
function releasedAtMs(release: string): number {
  const [, year, month, day] = /^(\d{4})(\d{2})(\d{2})/.exec(release) ?? [];
  return Date.UTC(Number(year), Number(month) - 1, Number(day));
}

export function checkGuest(isThere: boolean): Finding {
  return isThere ? pass('guest programs', 'there') : fail('guest programs', 'missing', INSTALL);
}

export function checkRootMaker(isThere: boolean): Finding {
  return isThere
    ? pass('mkfs.erofs', 'there')
    : fail('mkfs.erofs', 'missing: no new image can be used', 'apt-get install erofs-utils');
}

export function checkImages(images: readonly { name: string }[]): Finding {
  if (images.length === 0) return fail('images', 'none', `${INSTALL}, or sandgate-host images build python`);
  return pass('images', [...new Set(images.map(({ name }) => name))].sort().join(', '));
}

/** `identityMode`: of identity.json; undefined where there is none. */
export function checkEnrolment(identityMode: number | undefined): Finding {
  if (identityMode === undefined) {
    return fail('enrolment', 'this host is not enrolled', 'sandgate-host enroll <edge URL> <token>');
  }
  if ((identityMode & 0o077) === 0) return pass('enrolment', 'this host has its key');
  return fail(
    'enrolment',
    'others may read the key of this host',
    'chmod 600 on identity.json; then enrol anew, the key may be known',
  );
}

/** `unit`: whether it is there. `service`: what systemd says; undefined where systemd does not run. */
export function checkService(unit: boolean, service: string | undefined): Finding {
  if (!unit) return fail('service', 'not installed', INSTALL);
  if (service === undefined)
    return warn(
      'service',
      'systemd does not run here',
      'start host-agent/main.ts by your own supervisor, as ExecStart of the unit says',
    );
  if (service === 'active') return pass('service', 'active');
  return fail(
    'service',
    service,
    'systemctl start sandgate-host; journalctl -u sandgate-host says why it ended',
  );
}

export function checkAgent(asked: Outcome<AgentStatus>): Finding {
  if (!asked.ok) return fail('agent', asked.detail, 'systemctl start sandgate-host');
  const { state, edge_connected: isConnected, degraded, sandboxes, capacity } = asked.value;
  const refusal = asked.value.edge_refusal;
  const found = `${state}, ${sandboxes} of ${capacity} sandboxes`;
  if (degraded)
    return fail(
      'agent',
      `${found}, its journal cannot be written`,
      'make room on the disk of the state folder, or mount it writable',
    );
  if (!isConnected && refusal !== undefined)
    return fail(
      'agent',
      `${found}, refused by the edge: ${refusal.code}: ${refusal.detail}`,
      cureOfRefusal(asked.value) ?? 'it dials on; see the check of the edge below',
    );
  if (!isConnected)
    return fail(
      'agent',
      `${found}, not connected to the edge`,
      'see the check of the edge below; the log says why the link is refused',
    );
  if (state === 'draining') return warn('agent', found, 'sandgate-host resume');
  return pass('agent', found);
}
