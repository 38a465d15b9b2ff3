/* SPDX-License-Identifier: MIT */
/* The files of the page, as they are; answer.c knows them by these symbols. W_WEB is the folder, from CMakeLists.txt. */

    .macro file symbol, folder, name
    .globl \symbol, \symbol\()_end
    .hidden \symbol, \symbol\()_end
    .type \symbol, %object
\symbol:
    .incbin "\folder/\name"
\symbol\()_end:
    .size \symbol, . - \symbol
    .byte 0
    .endm

    .section .rodata
    file w_page_html, W_WEB, index.html
    file w_page_css, W_WEB, weft.css
    file w_page_js, W_WEB, weft.js
    file w_page_common, W_WEB, common.js
    file w_page_scene, W_WEB, scene.js
    file w_page_plots, W_WEB, plots.js
    file w_page_groups, W_WEB, groups.js
    file w_page_record, W_WEB, record.js

    .section .note.GNU-stack, "", %progbits
