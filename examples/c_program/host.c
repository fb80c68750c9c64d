/* A host of one's own for an emitted program: gives it inputs, runs it on the C model, reads a result.
 *
 * The program is one softmax of a row of numbers in f32 (see the Makefile). `tensors.h` says where its tensors lie in DDR.
 */
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "tensors.h"
#include "tx8_model.h"

int main(void) {
    tx8_model *chip = tx8_model_open(TILES, SPM_BYTES, DDR_BASE, DDR_BYTES, program_duration);
    float x[1024] = {0}, y[1024], sum = 0;
    int n = (int)(inputs[0].bytes / 4);
    if (!chip || n > 1024 || inputs[0].blocked) return 2;

    for (int i = 0; i < n; i++) x[i] = (float)(i % 7);
    memcpy(tx8_model_ddr(chip) + inputs[0].address, x, (size_t)inputs[0].bytes);
    if (tx8_model_run(chip, tile_main)) {
        fprintf(stderr, "error: %s\n", tx8_model_error(chip));
        return 2;
    }
    memcpy(y, tx8_model_ddr(chip) + outputs[0].address, (size_t)inputs[0].bytes);

    for (int i = 0; i < n; i++) sum += y[i];
    printf("softmax of %d numbers: the first are %.6f %.6f %.6f, their sum is %.4f\n", n, y[0], y[1], y[2], sum);
    printf("vector engines: %lld instructions, %lld cycles; %lld bytes to and from DDR\n",
           (long long)tx8_model_instructions(chip, TX8_CT), (long long)tx8_model_cycles(chip, TX8_CT),
           (long long)tx8_model_ddr_bytes(chip));
    tx8_model_close(chip);
    return 0;
}
