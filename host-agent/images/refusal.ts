/** Why an image is not taken: one line for the operator. Anything else that is thrown is a defect. */
export class ImageRefusal extends Error {
  override readonly name = 'ImageRefusal';
}
