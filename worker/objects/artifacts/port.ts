/** What others may ask of the object that knows the artifacts of one tenant. */
import type { Artifact, ArtifactList } from '../../../shared/artifact.ts';
import type { Outcome } from '../../../shared/errors.ts';

export interface NewArtifact {
  artifactId: string;
  tenant: string;
  subject: string;
  name: string;
  /** Reserved of the tenant's storage until it is known how many there are. */
  maxBytes: number;
  source: Artifact['source'];
}

export interface ArtifactsPort {
  /** Takes a place for one that is about to be stored; each id is good once. What is never completed goes by itself. */
  begin(artifact: NewArtifact): Promise<Outcome<null>>;
  /** Its bytes are stored: it takes the place of the one of this name. */
  complete(stored: { artifactId: string; bytes: number; sha256: string }): Promise<Outcome<Artifact>>;
  /** It was not stored. */
  abandon(artifactId: string): Promise<Outcome<null>>;
  find(subject: string, name: string): Promise<Outcome<Artifact>>;
  /** In the order of their names, those after `after`. */
  list(input: { subject: string; after: string; limit: number }): Promise<Outcome<ArtifactList>>;
  /** Its bytes go soon. */
  remove(subject: string, name: string): Promise<Outcome<null>>;
}
