/* What the text of programs is made of: short forms for sequences of the public interface's functions. */
#ifndef TX8_OPS_H
#define TX8_OPS_H
#include "tx8_abi.h"

/* An empty packet P of a class for one of the three workers, and the table F whose members fill it in. */
#define PACKET(class_, worker, instr, type, table)                                \
    Tsm##instr##Instr packet = {(class_) | (worker) << 8, {0}, {0}}, *const P = &packet; \
    const Tsm##type *const F = getTsmOpPointer()->table##_pointer
/* Fill in a packet by one member, and issue it. */
#define ISSUE(class_, worker, type, table, call)            \
    do {                                                    \
        PACKET(class_, worker, type, type, table);          \
        F->call;                                            \
        TsmExecute(P);                                      \
    } while (0)
#define ARITH(worker, call) ISSUE(I_CGRA, worker, Arith, arith, call)
#define RELATION(worker, call) ISSUE(I_CGRA, worker, Relation, relation, call)
#define LOGIC(worker, call) ISSUE(I_CGRA, worker, Logic, logic, call)
#define TRANSCENDENTAL(worker, call) ISSUE(I_CGRA, worker, Transcendental, transcendental, call)
#define ACTIVATION(worker, call) ISSUE(I_CGRA, worker, Activation, activation, call)
#define CONVERT(worker, call) ISSUE(I_CGRA, worker, Convert, convert, call)
#define REDUCE(worker, call) ISSUE(I_CGRA, worker, Reduce, reduce, call)
#define POOL(worker, call) ISSUE(I_CGRA, worker, Pool, pool, call)
#define UNPOOL(worker, call) ISSUE(I_CGRA, worker, UnPool, unPool, call)
#define MASKDATAMOVE(worker, call) ISSUE(I_CGRA, worker, MaskDataMove, maskDataMove, call)
#define PERIPHERAL(worker, call) ISSUE(I_CGRA, worker, Peripheral, peripheral, call)
#define PERIPHERAL_TDMA(worker, call) ISSUE(I_TDMA, worker, Peripheral, peripheral, call)
#define DATAMOVE(worker, call) ISSUE(I_TDMA, worker, DataMove, dataMove, call)
#define DATAMOVE_CT(worker, call) ISSUE(I_CGRA, worker, DataMove, dataMove, call)

/* A program's tile, and its messages that may still be under way. all: its number, counted on over the chips. */
#define OP_SENDS 8
typedef struct {
    uint32_t tile, all, n_sent;
    uint64_t ddr;
    direct_dte_info sent[OP_SENDS];
} op_tile;

/* What a tile receives on a monitor in one group: messages of at most so many bytes; none: the monitor is not used. */
typedef struct {
    uint32_t packet_bytes, packets;
} op_monitor;

static inline Data_Shape op_shape(uint32_t n, uint32_t h, uint32_t w, uint32_t c) {
    Data_Shape s;
    s.n = (uint16_t)n, s.h = (uint16_t)h, s.w = (uint16_t)w, s.c = (uint16_t)c;
    return s;
}

/* --- DDR to scratchpad and back: bytes; or runs of bytes, with strides in bytes of the side in DDR, and their counts, the innermost
 * first. In scratchpad runs follow each other. --- */

#define OP_DMA(name, class_, type, table)                                                                                       \
    static inline void op_dma_##name(uint32_t worker, uint64_t dst, uint64_t src, uint32_t bytes) {                              \
        PACKET(class_, worker, type, type, table);                                                                              \
        F->type##1d(P, src, dst, bytes, Fmt_INT8);                                                                               \
        TsmExecute(P);                                                                                                          \
    }                                                                                                                           \
    static inline void op_dma_##name##_runs(uint32_t worker, uint64_t dst, uint64_t src, uint32_t bytes, uint32_t s0, uint32_t n0, \
                                            uint32_t s1, uint32_t n1, uint32_t s2, uint32_t n2) {                               \
        PACKET(class_, worker, type, type, table);                                                                              \
        F->AddSrcDst(P, src, dst, Fmt_INT8);                                                                                    \
        F->ConfigStrideIteration(P, bytes, s0, n0, s1, n1, s2, n2);                                                             \
        TsmExecute(P);                                                                                                          \
    }
OP_DMA(load, I_RDMA, Rdma, rdma)
OP_DMA(store, I_WDMA, Wdma, wdma)

static inline void op_memcpy(uint32_t worker, uint64_t dst, uint64_t src, uint32_t bytes) {
    PACKET(I_TDMA, worker, DataMove, DataMove, dataMove);
    F->GatherScatter(P, src, dst, bytes, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1);
    TsmExecute(P);
}

/* --- waiting --- */

static inline void op_wait_workers(uint32_t workers) {
    for (uint32_t k = 0; k < 3; k++)
        if (workers >> k & 1) TsmWaitfinish_bywork(k);
}

static inline void op_barrier(void) {
    __AtomicBarrierIn();
    __AtomicBarrierOut();
}

/* Tiles by the bits of a mask. */
static inline uint32_t op_tiles(uint32_t mask, uint32_t *tiles) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < 32; k++)
        if (mask >> k & 1) tiles[n++] = k;
    return n;
}

static inline void op_barrier_of(uint32_t mask) {
    uint32_t tiles[32], n = op_tiles(mask, tiles);
    __BarrierSubgroup(tiles, n);
}

/* --- messages --- */

/* Wait until all messages of this tile are under way no more: their sources may be overwritten. */
static inline void op_send_wait(op_tile *t) {
    for (uint32_t k = 0; k < t->n_sent; k++) {
        direct_dte_wait_done(&t->sent[k]);
        direct_dte_release(t->sent[k].node);
    }
    t->n_sent = 0;
}

static inline direct_dte_info *op_message(op_tile *t, uint32_t mode, uint64_t dst, uint64_t src, uint32_t bytes, uint32_t mask, uint32_t monitor,
                                          uint32_t s0, uint32_t n0, uint32_t s1, uint32_t n1, uint32_t s2, uint32_t n2) {
    if (t->n_sent == OP_SENDS) op_send_wait(t);
    direct_dte_info *info = &t->sent[t->n_sent++];
    info->src = src, info->dst = dst, info->length = bytes;
    info->remote_fsm_id = monitor, info->mode = mode, info->tile_this = t->tile;
    info->dest_num = op_tiles(mask, info->dst_tile) - 1;
    info->stride[0] = s0, info->iteration[0] = n0;
    info->stride[1] = s1, info->iteration[1] = n1;
    info->stride[2] = s2, info->iteration[2] = n2;
    info->node = direct_dte_attach(0);
    return info;
}

static inline void op_gather_send(op_tile *t, uint32_t mode, uint64_t dst, uint64_t src, uint32_t bytes, uint32_t mask, uint32_t monitor,
                                  uint32_t s0, uint32_t n0, uint32_t s1, uint32_t n1, uint32_t s2, uint32_t n2) {
    direct_dte_send_async(op_message(t, mode, dst, src, bytes, mask, monitor, s0, n0, s1, n1, s2, n2));
}

/* To a tile of another chip. */
static inline void op_send_chip(op_tile *t, uint32_t chip, uint64_t dst, uint64_t src, uint32_t bytes, uint32_t mask, uint32_t monitor) {
    op_dte_send_chip(op_message(t, DTE_UNICAST, dst, src, bytes, mask, monitor, 0, 1, 0, 1, 0, 1), chip);
}

/* The same bytes for every tile of the mask. */
static inline void op_send(op_tile *t, uint64_t dst, uint64_t src, uint32_t bytes, uint32_t mask, uint32_t monitor) {
    uint32_t mode = mask & (mask - 1) ? DTE_BROADCAST : DTE_UNICAST;
    op_gather_send(t, mode, dst, src, bytes, mask, monitor, 0, 1, 0, 1, 0, 1);
}

/* Let a launch that spans chips begin on all of them together, so that nobody sends to a tile that still does what was before. */
static inline void op_meet_chips(const op_tile *t, uint32_t chips, uint32_t tiles) {
    uint32_t own = t->all / tiles;
    for (uint32_t turn = 0; turn < 2 && !t->tile; turn++) /* all come to the first chip, then it lets them go */
        for (uint32_t chip = own ? 0 : 1; chip < (own ? 1 : chips); chip++) op_sync_chip(chip, 0);
    op_barrier();
}

/* Let the monitors count that a group receives on, before anybody may send; and end that. */
static inline void op_monitors(const op_monitor *monitors, uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        if (monitors[k].packets) direct_fsm_monitor_init(k, 0, monitors[k].packet_bytes, monitors[k].packets);
}

static inline void op_monitors_end(const op_monitor *monitors, uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        if (monitors[k].packets) direct_fsm_monitor_deinit(k);
}

#endif
