/* Chips of tiles that run one C program, in place of the chips. */
#ifndef TX8_MODEL_H
#define TX8_MODEL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The program: what every tile runs. tile: its number, counted on over the chips; ddr: where the DDR of its chip begins. */
typedef void tx8_program(uint32_t tile, uint64_t ddr);
/* How long a row occupies its unit, in cycles, without the transfer of bytes: written for a machine from the declarations of its
 * instructions. ddr: address of the row's operand in DDR; ddr_bytes: what a transfer is charged for. -1: no such row is known. */
typedef int64_t tx8_duration(const void *row, int64_t ddr, int64_t *ddr_bytes);

enum { TX8_CT, TX8_NE, TX8_RDMA, TX8_WDMA, TX8_TDMA, TX8_KCORE, TX8_DTE, TX8_UNITS };
#define TX8_UNIT_NAMES {"ct", "ne", "rdma", "wdma", "tdma", "kcore", "dte"}

typedef struct tx8_model tx8_model;
/* Make a chip. ddr_base: address of its first byte of DDR. Scratchpads and DDR are zeros. NULL: no memory. */
tx8_model *tx8_model_open(uint32_t tiles, int64_t spm_bytes, uint64_t ddr_base, int64_t ddr_bytes, tx8_duration *duration);
/* Several, of so many tiles each, with `ddr_bytes` of DDR each. */
tx8_model *tx8_model_open_chips(uint32_t chips, uint32_t tiles, int64_t spm_bytes, uint64_t ddr_base, int64_t ddr_bytes, tx8_duration *duration);
/* The DDR of the first chip, or of one of several, `ddr_bytes` long. */
uint8_t *tx8_model_ddr(tx8_model *model);
uint8_t *tx8_model_chip_ddr(tx8_model *model, uint32_t chip);
/* Run the program on all tiles to its end. Returns 0, or not 0 and `tx8_model_error` says what was wrong. */
int tx8_model_run(tx8_model *model, tx8_program *program);
const char *tx8_model_error(const tx8_model *model);
/* Of all tiles and runs: cycles that a unit was busy (of transfers from and to DDR without the time that their bytes take), and
 * bytes that transfers were charged for. */
int64_t tx8_model_cycles(const tx8_model *model, int unit);
int64_t tx8_model_instructions(const tx8_model *model, int unit);
int64_t tx8_model_ddr_bytes(const tx8_model *model);
void tx8_model_close(tx8_model *model);

/* Compare two images of a tensor element by element, padding left out: (n, positions, channels) of `size` bytes, dense or in
 * channel blocks. Returns how many differ; `first` is the number of the first. */
int64_t tx8_model_compare(const uint8_t *got, const uint8_t *want, int blocked, int format, int64_t n, int64_t positions,
                          int64_t channels, int64_t *first);

#ifdef __cplusplus
}
#endif
#endif
