/** The one runsc this project runs, by digest. Change version and digests together. */

export const RUNSC_RELEASE = '20240729';

export type DebianPin = { debSha256: string; binarySha256: string };

/** Debian trixie's build. A rebuild (`+bN`) or a new revision of Debian's has other bytes and needs a new pin. */
export const DEBIAN_RUNSC = {
  suite: 'trixie',
  package: 'runsc',
  version: '0.0~20240729.0-4+b7',
  builds: new Map<string, DebianPin>([
    [
      'amd64',
      {
        debSha256: '3c25a5130dfac2f71237d5baad56ac86a255de87a0400f11b36a555156dc325a',
        binarySha256: 'ce52e04038baa76d6069afae5fc1bee60c153bbf0276f2c3c25506553526f38f',
      },
    ],
    [
      'arm64',
      {
        debSha256: '8e13e0625a094f962da3edcaf81ab0ed779726b6335e385a8148919f2c217c8e',
        binarySha256: '5ca3024e8ccdbeee6c50a088563f7182699c4d13f40936a7faa47a6b172b9fc5',
      },
    ],
  ]),
};

/** gVisor's own release of the same day, for machines that reach it; its digest lies beside it as `.sha512`. */
export const GVISOR_RUNSC = {
  release: RUNSC_RELEASE,
  baseUri: 'https://storage.googleapis.com/gvisor/releases/release',
};
